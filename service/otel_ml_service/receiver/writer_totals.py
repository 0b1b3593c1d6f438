"""What a writer says it has sent in all: attributes of a heartbeat or a shutdown message → numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from otel_ml.wire import attributes as wire
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.observation import Totals

__all__ = ["amount", "amounts", "count_or_none", "totals_of"]


def totals_of(said: Mapping[str, JsonValue]) -> Totals | None:
    """Return the totals among the attributes of a heartbeat; None where it brings none."""
    if wire.POINTS not in said:
        return None
    return Totals(
        int(amount(said.get(wire.RECORDED))),
        int(amount(said[wire.POINTS])),
        count_or_none(said, wire.VALUES),
        count_or_none(said, wire.EVENTS),
    )


def count_or_none(said: Mapping[str, JsonValue], key: str) -> int | None:
    """Return a count; None where it is not said: absent is not 0."""
    return int(amount(said[key])) if key in said else None


def amounts(value: JsonValue) -> Mapping[str, int] | None:
    """Return counts by reason; None where it is none."""
    return {key: int(amount(count)) for key, count in value.items()} if isinstance(value, Mapping) else None


def amount(value: JsonValue) -> float:
    """Return a number as it may be counted; 0 where it is none."""
    return max(0.0, float(value)) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0
