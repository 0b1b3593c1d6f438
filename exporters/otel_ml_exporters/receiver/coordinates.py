"""Where a point belongs: step, axis and reduction, from attributes of its scope or its own (CONTRACT §4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from otel_ml.wire import attributes as wire
from otel_ml_exporters.receiver.values import as_text
from otel_ml_exporters.records import JsonValue

__all__ = ["COORDINATES", "DEFAULT_REDUCTION", "Coordinates", "coordinates"]

COORDINATES = frozenset({wire.STEP, wire.AXIS, wire.REDUCTION})

DEFAULT_REDUCTION = "mean"


class Coordinates(NamedTuple):
    """What a scope or a point says about where it belongs."""

    axis: str | None
    step: int | None
    reduction: str | None


def coordinates(found: Mapping[str, JsonValue]) -> Coordinates:
    """Read step, axis and reduction from attributes.

    Raises:
        ValueError: the step or the axis is not one.
    """
    step = found.get(wire.STEP)
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
        raise ValueError(f"{wire.STEP}={step!r} is no step; expected a whole number of at least 0.")
    axis = found.get(wire.AXIS, wire.DEFAULT_AXIS)
    if not isinstance(axis, str) or not axis:
        raise ValueError(f"{wire.AXIS}={axis!r} is no axis; expected a name such as 'step' or 'rollout'.")
    reduction = found.get(wire.REDUCTION)
    return Coordinates(axis, step, None if reduction is None else as_text(reduction))
