"""What a writer's `define_metric()` says of metrics that others record: an attribute of its heartbeat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import JsonValue

__all__ = ["declared_of"]

_LONGEST = 1 << 20


def declared_of(said: Mapping[str, JsonValue]) -> tuple[tuple[str, Reduction], ...]:
    """Return (name or glob, reduction); what cannot be read says nothing."""
    text = said.get(wire.REDUCTIONS)
    return tuple(_read(text)) if isinstance(text, str) and len(text) <= _LONGEST else ()


def _read(text: str) -> Iterator[tuple[str, Reduction]]:
    try:
        rows = json.loads(text)
        for pattern, reduction, defaults in rows:
            if isinstance(pattern, str):
                yield pattern, Reduction.parse(str(reduction), str(defaults))
    except (ValueError, TypeError, WireError, RecursionError):
        return
