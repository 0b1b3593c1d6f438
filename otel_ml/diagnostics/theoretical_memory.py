"""How much memory a transformer should need, before it runs: to be compared with what it does need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["MemoryEstimate", "theoretical_memory"]

_GATED_MATRICES, _PLAIN_MATRICES = 3, 2


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of the device that holds most.

    Attributes:
        parameters: of the whole model.
        weights_and_optimizer: bf16 weights, fp32 gradients, and Adam's fp32 master weights and moments.
        activations: kept for the backward pass.
    """

    parameters: int
    weights_and_optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """Both parts."""
        return self.weights_and_optimizer + self.activations


def theoretical_memory(
    *,
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    sequence: int,
    micro_batch: int,
    ffn: int | None = None,
    key_value_heads: int | None = None,
    gated: bool = False,
    tied: bool = True,
    tensor: int = 1,
    pipeline: int = 1,
    data: int = 1,
    sharded_optimizer: bool = False,
    recompute: Literal["none", "selective", "full"] = "selective",
) -> MemoryEstimate:
    """Estimate the memory of training a dense transformer with Adam in bf16.

    Weights and optimizer take 18 bytes a parameter, with an optimizer sharded over `data` 6 + 12/data. Activations
    follow Korthikanti et al. 2022 (arXiv:2205.05198): s·b·h·(34 + 5·a·s/h) bytes a layer, without the second term where
    attention is recomputed, 2·s·b·h where whole layers are; divided by `tensor`, with sequence parallelism. The first
    pipeline stage holds the activations of `pipeline` micro-batches, of its layers: together those of all layers.

    Args:
        layers: transformer layers.
        hidden: width.
        heads: attention heads.
        vocabulary: tokens.
        sequence: tokens of a sample.
        micro_batch: samples of a micro-batch.
        ffn: width of the feed-forward part, 4 × hidden by default.
        key_value_heads: groups of grouped-query attention, heads by default.
        gated: the feed-forward part has three matrices (SwiGLU), not two.
        tied: input and output embedding are one matrix.
        tensor: tensor-parallel size.
        pipeline: pipeline-parallel size.
        data: data-parallel size.
        sharded_optimizer: the optimizer's state is split over `data`.
        recompute: what is computed again in the backward pass.

    Examples:
        >>> estimate = theoretical_memory(
        ...     layers=96, hidden=12288, heads=96, vocabulary=51200, sequence=2048, micro_batch=1, tensor=8, pipeline=8
        ... )
        >>> round(estimate.parameters / 1e9), round(estimate.weights_and_optimizer / 2**30, 1)
        (175, 46.9)
    """
    wide = 4 * hidden if ffn is None else ffn
    groups = heads if key_value_heads is None else key_value_heads
    # Query and output are hidden × hidden each; key and value have `groups` of `heads` columns.
    attention = 2 * hidden * hidden * (1 + groups / heads)
    feed_forward = (_GATED_MATRICES if gated else _PLAIN_MATRICES) * hidden * wide
    per_layer = attention + feed_forward + 4 * hidden  # two norms, each with weight and bias
    embedding = vocabulary * hidden
    parameters = layers * per_layer + embedding * (1 if tied else 2) + 2 * hidden
    # Of several stages the first has the embedding of the input, the last that of the output.
    held = (layers * per_layer / pipeline + embedding * (1 if tied or pipeline > 1 else 2)) / tensor
    # 2 bytes of bf16 weight and 4 of fp32 gradient stay on each rank; 4 of master weight and 8 of Adam's moments are
    # split.
    per_parameter = 6 + 12 / data if sharded_optimizer else 18
    return MemoryEstimate(
        parameters=round(parameters),
        weights_and_optimizer=round(held * per_parameter),
        activations=round(layers * _activations(sequence, micro_batch, hidden, heads, recompute) / tensor),
    )


def _activations(sequence: int, micro_batch: int, hidden: int, heads: int, recompute: str) -> float:
    tokens = sequence * micro_batch * hidden
    if recompute == "full":
        return 2.0 * tokens
    # The second term is what attention keeps of scores and softmax, which recomputing it spares.
    return tokens * (34 + (5 * heads * sequence / hidden if recompute == "none" else 0))
