"""Where a point belongs: step, axis and reduction, from attributes of its scope or its own (docs/protocol.md §4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import DEFAULT
from otel_ml_exporters.records import JsonValue
from otel_ml_service.receiver.attribute_values import as_text

__all__ = ["COORDINATES", "Coordinates", "coordinates", "reduction_of"]

COORDINATES = frozenset({wire.STEP, wire.AXIS, wire.REDUCTION, wire.REDUCTION_DEFAULT})


class Coordinates(NamedTuple):
    """What a scope or a point says about where it belongs; `defaults` are the parts of `reduction` nobody asked for."""

    axis: str | None
    step: int | None
    reduction: str | None
    defaults: str = ""


def coordinates(found: Mapping[str, JsonValue]) -> Coordinates:
    """Read step, axis and reduction from attributes.

    Raises:
        ValueError: the step or the axis is not one.
    """
    step = found.get(wire.STEP)
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
        raise ValueError(f"{wire.STEP}={step!r} is not a step; expected a whole number of at least 0.")
    axis = found.get(wire.AXIS, wire.DEFAULT_AXIS)
    if not isinstance(axis, str) or not axis:
        raise ValueError(f"{wire.AXIS}={axis!r} is not an axis; expected a name such as 'step' or 'rollout'.")
    reduction = found.get(wire.REDUCTION)
    if reduction is None:
        return Coordinates(axis, step, None)
    return Coordinates(axis, step, as_text(reduction), as_text(found.get(wire.REDUCTION_DEFAULT, "")))


def reduction_of(where: Coordinates) -> Reduction:
    """Return the reduction; a mean, which nobody asked for, where there is none.

    Raises:
        WireError: there is no such reduction.
    """
    if where.reduction is None:
        return Reduction.parse(DEFAULT, "across")
    return Reduction.parse(where.reduction, where.defaults)
