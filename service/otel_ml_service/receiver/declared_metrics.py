"""What a writer says of metrics and timers that others record, too: attributes of its heartbeat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import JsonValue
from otel_ml_service.findings.phases import TimerKind

__all__ = ["declared_of", "kinds_of"]

_LONGEST = 1 << 20


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
    except (ValueError, TypeError, WireError, RecursionError):
        return
