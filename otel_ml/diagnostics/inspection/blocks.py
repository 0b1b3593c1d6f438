"""How far apart the magnitudes of a block are: what a format with a scale for each block has to bear."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

__all__ = ["BLOCK_STATISTIC", "BlockRange"]

BLOCK_STATISTIC = "max_blockwise_dynamic_range"

_NAME = re.compile(rf"{BLOCK_STATISTIC}(?:_block_size_(?P<size>[1-9]\d*)_dims_(?P<dims>[12]))?")

_BOTH_WAYS = frozenset({"weight", "activation", "gradient"})
"""Tensors that training multiplies as they are and transposed."""


class BlockRange(NamedTuple):
    """The largest log2 of the largest by the smallest absolute element that is not 0, of all blocks.

    Attributes:
        size: elements of a block's side.
        dims: 1 for blocks of `size` consecutive elements, 2 for squares of `size` × `size`.
    """

    size: int = 32
    dims: int = 1

    @classmethod
    def named(cls, name: str) -> BlockRange | None:
        """Return what a statistic of this name measures; None where it is another one.

        Examples:
            >>> BlockRange.named("max_blockwise_dynamic_range")
            BlockRange(size=32, dims=1)
            >>> BlockRange.named("max_blockwise_dynamic_range_block_size_16_dims_2")
            BlockRange(size=16, dims=2)
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        return cls() if match["size"] is None else cls(int(match["size"]), int(match["dims"]))

    @property
    def name(self) -> str:
        """Name of the statistic, as NVIDIA's tool writes it."""
        return f"{BLOCK_STATISTIC}_block_size_{self.size}_dims_{self.dims}"

    def of(self, tensor: Any, kind: str) -> Any:
        """Return the range of a tensor, -inf where all is 0; nothing waits for the device.

        Blocks are taken from the tensor as a matrix with its last dimension; those at the edges may be smaller.

        Args:
            tensor: with at least one element.
            kind: which tensor of a layer it is. Training multiplies weights, activations and gradients of outputs
                also transposed: of blocks along one dimension, the larger one of both ways counts.

        Examples:
            >>> import torch
            >>> tensor = torch.tensor([[1.0, 2.0, 64.0, 64.0], [1.0, 4.0, 0.0, 64.0]])
            >>> [float(BlockRange(2, dims).of(tensor, "output")) for dims in (1, 2)]
            [2.0, 2.0]
            >>> float(BlockRange(4, 1).of(tensor, "output"))
            6.0
        """
        values = tensor.detach().float()
        # A tensor without dimensions is a matrix of one element.
        matrix = values.reshape(-1, values.shape[-1] if values.dim() else 1)
        if self.dims == 2:
            return _range(matrix, self.size, self.size)
        found = _range(matrix, 1, self.size)
        return found.maximum(_range(matrix, self.size, 1)) if kind in _BOTH_WAYS else found


def _range(matrix: Any, height: int, width: int) -> Any:
    import torch

    rows, columns = matrix.shape
    padded = torch.nn.functional.pad(matrix.abs(), (0, -columns % width, 0, -rows % height))
    # Rows of blocks × height × columns of blocks × width.
    blocks = padded.reshape(padded.shape[0] // height, height, padded.shape[1] // width, width)
    largest = blocks.amax(dim=(1, 3))
    # Padding is 0 and so left out, and a block of zeros has log2(0) - log2(inf), which is -inf.
    smallest = blocks.masked_fill(blocks == 0, float("inf")).amin(dim=(1, 3))
    return (largest.log2() - smallest.log2()).max()
