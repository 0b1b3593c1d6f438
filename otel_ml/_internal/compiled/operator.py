"""The operator by which compiled code records: `otel_ml::log`, of which each call is one `log()`.

All that a graph keeps of a call is in its arguments, as text: a graph may come out of a cache that another process has
written. Its values are what the graph computes: tensors, and the numbers that were not known when it was compiled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import torch

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.log import log

__all__ = ["define_operator", "described"]

_SCHEMA = "log(str call, Tensor[] values, Scalar[] numbers, SymInt? step) -> ()"

_TAGS = tuple(tag for name in ("cudagraph_unsafe",) if (tag := getattr(torch.Tag, name, None)) is not None)
"""Inductor captures what is before the operator and what is after it. An older one captures it, too, and then checks
what stays of the memory that it has used meanwhile: nothing may."""

_LIBRARY = torch.library.Library("otel_ml", "FRAGMENT")
"""Kept for as long as the process: an operator goes with its library."""


@cache
def define_operator() -> None:
    """Define `otel_ml::log`, which no pass over a graph drops, repeats or moves before another one; once.

    Raises:
        ImportError: this torch knows no operators with effects.
    """
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _LIBRARY.define(_SCHEMA, tags=_TAGS)
    # One kernel for all devices, and nothing in it for autograd to go through.
    _LIBRARY.impl("log", _log, "CompositeExplicitAutograd")
    torch.library.register_fake("otel_ml::log", _nothing, lib=_LIBRARY)
    operator = torch.ops.otel_ml.log.default
    _register_effectful_op(operator, _EffectType.ORDERED)
    # An operator that returns nothing is otherwise dead code to a pass of `torch.fx`.
    torch.fx.has_side_effect(operator)


def described(names: Sequence[str], kinds: Sequence[Any], weight: Any, step: Any, options: Mapping[str, Any]) -> str:
    """Return the text of a call: what was known of it when it was compiled.

    Args:
        names: of the values.
        kinds: of each value, and of the weight: "tensor" or "number" (the next one of the operator's), their number
            as a list for a sequence, `{"constant": …}` for anything else.
        weight: its kind.
        step: its kind, where it is not the operator's.
        options: the other arguments of `log()`.
    """
    return json.dumps([[*names], [*kinds], weight, step, dict(options)], default=str)


def _nothing(call: str, values: Sequence[Any], numbers: Sequence[Any], step: Any) -> None:
    """What the operator returns while a graph is made."""


def _log(call: str, values: Sequence[torch.Tensor], numbers: Sequence[Any], step: int | None) -> None:
    try:
        names, kinds, weight, other_step, options = _parsed(call)
        if not _TAGS and values and values[0].is_cuda and torch.cuda.is_current_stream_capturing():
            _refuse_captured(names)
            return
        found = _Found(values, numbers)
        given = {name: found.next(kind) for name, kind in zip(names, kinds, strict=True)}
        # In the order in which `traced_calls._call()` has put them there.
        found_weight = found.next(weight)
        found_step = found.next(other_step) if step is None else step
        log(given, found_step, weight=found_weight, **options)
    except Exception as error:  # noqa: BLE001 (the boundary to the user's program)
        reporter.failed("log() in compiled code", error)


def _refuse_captured(names: Sequence[str]) -> None:
    reporter.drop(
        "captured_full",
        f"This torch captures a CUDA graph of compiled code in which {names[0]!r:.120} is recorded, and is too old to "
        "leave the call out of it. Use mode='max-autotune-no-cudagraphs' or a newer torch.",
        len(names),
        kind="captured compiled code",
    )


@lru_cache(maxsize=4096)
def _parsed(call: str) -> list[Any]:
    parsed: list[Any] = json.loads(call)
    return parsed


class _Found:
    """The arguments of one call of the operator, taken in their order."""

    __slots__ = ("_numbers", "_values")

    def __init__(self, values: Sequence[torch.Tensor], numbers: Sequence[Any]) -> None:
        self._values = iter(values)
        self._numbers = iter(numbers)

    def next(self, kind: Any) -> Any:
        """Return the next value of this kind."""
        if kind == "tensor":
            return next(self._values)
        if kind == "number":
            return next(self._numbers)
        if isinstance(kind, list):
            return [self.next(one) for one in kind]
        # `None` is the kind of a weight, or of a step, that the call does not have.
        return None if kind is None else kind["constant"]
