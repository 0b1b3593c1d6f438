"""What a writer says of itself, as attributes of a heartbeat or a shutdown message: totals, reductions, timers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.observation import Totals
from otel_ml_service.findings.phases import TimerKind

__all__ = ["amount", "amounts", "count_or_none", "declared_of", "kinds_of", "totals_of"]


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


_LONGEST = 1 << 20
"""Characters of JSON that is read; what is longer says nothing."""


def declared_of(said: Mapping[str, JsonValue]) -> tuple[tuple[str, Reduction], ...]:
    """Return (name or glob, reduction); what cannot be read says nothing."""
    text = said.get(wire.REDUCTIONS)
    return tuple(_read(text)) if isinstance(text, str) and len(text) <= _LONGEST else ()


def kinds_of(said: Mapping[str, JsonValue]) -> tuple[tuple[str, TimerKind], ...]:
    """Return (timer, kind); what cannot be read says nothing."""
    text = said.get(wire.TIMERS)
    try:
        rows = json.loads(text) if isinstance(text, str) and len(text) <= _LONGEST else ()
        return tuple((name, kind) for name, kind in rows if isinstance(name, str) and kind in ("work", "wait"))
    except (ValueError, TypeError, RecursionError):
        return ()


def _read(text: str) -> Iterator[tuple[str, Reduction]]:
    try:
        rows = json.loads(text)
        for pattern, reduction, defaults in rows:
            if isinstance(pattern, str):
                yield pattern, Reduction.parse(str(reduction), str(defaults))
    # What stands before the first entry that cannot be read was yielded, and counts.
    except (ValueError, TypeError, WireError, RecursionError):
        return
