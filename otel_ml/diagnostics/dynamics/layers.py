"""Values of single layers: mixture of experts, multi-token prediction, attention."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from otel_ml._internal.device_tensor import is_on_device
from otel_ml._internal.safe_repr import exact_text
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.diagnostics.tensor_statistics import Blocks, OneOf, arrival_of
from otel_ml.never_raises import never_raises

__all__ = ["record_attention_logit", "record_layer", "record_routing"]


@never_raises
def record_layer(
    family: str, name: str, value: Any, *, layer: int, reduce: str = "mean", over: str | None = None
) -> None:
    """Record `<family>/<name>/layer_<layer>`, and `<family>/<name>` over all layers.

    Layers of other pipeline stages are recorded by the ranks that have them: nothing is gathered.

    Args:
        family: `moe` or `mtp`, for instance.
        name: such as `load_balancing_loss`.
        value: a number or 0-d tensor.
        layer: its number in the whole model.
        reduce: over ranks, and for `<family>/<name>` over layers too.
        over: topology dimension of which one rank per coordinate counts.
    """
    family, name = exact_text(family), exact_text(name)
    whole = f"{family}/{name}"
    Measure(f"{whole}/layer_{layer}", "1", (reduce,), f"{name} of layer {layer}.").record(value, over=over)
    Measure(whole, "1", (reduce,), f"{name} of all layers.").record(value, over=over)


@never_raises
def record_routing(tokens: Iterable[Any], *, layer: int) -> None:
    """Record how many tokens of this rank each expert of a layer got: `moe/tokens/layer_<l>/expert_<e>`, summed.

    `metrics.jsonl` then holds the trace of routing. Of a device tensor all experts are one copy.

    Args:
        tokens: one number an expert; a 1-d tensor works.
        layer: its number in the whole model.
    """
    if is_on_device(tokens) and hasattr(tokens, "detach"):
        _record_on_device(tokens, layer)
        return
    for expert, count in enumerate(tokens):
        _expert(layer, expert).record(count)


def _record_on_device(tokens: Any, layer: int) -> None:
    counts = tokens.detach().double() if tokens.is_cuda else tokens  # as `arrival_of()` takes them
    arrival = arrival_of(counts, _blocks_on(tokens.device))
    experts = _experts(layer, len(tokens))
    # One copy for all experts of the layer, and each record reads its own place in it.
    experts.record_later({name: OneOf(arrival, expert) for expert, name in enumerate(experts)})


def _expert(layer: int, expert: int) -> Measure:
    return Measure(f"moe/tokens/layer_{layer}/expert_{expert}", "{token}", ("sum",), "Tokens routed.")


@lru_cache(maxsize=1024)
def _experts(layer: int, count: int) -> Measures:
    return Measures(*[_expert(layer, expert) for expert in range(count)])


@cache
def _blocks_on(_device: Any) -> Blocks:
    # A device each, since pinned memory is given back by the device's own events; the argument is the key of the cache.
    return Blocks()


@never_raises
def record_attention_logit(value: Any, *, layer: int | None = None) -> None:
    """Record the largest attention logit of this rank: `attention/max_logit`, the maximum over ranks and layers.

    Args:
        value: a number or 0-d tensor.
        layer: also gives the layer a series of its own.
    """
    Measure("attention/max_logit", "1", ("max",), "Largest attention logit.").record(value)
    if layer is not None:
        name = f"attention/max_logit/layer_{layer}"
        Measure(name, "1", ("max",), f"Largest attention logit of layer {layer}.").record(value)
