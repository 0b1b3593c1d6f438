"""Instrumentation scopes: two meters of a process with one name are two streams (docs/protocol.md §4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from otel_ml.wire import attributes as wire
from otel_ml_exporters.records import JsonValue
from otel_ml_service.receiver.attribute_values import as_text
from otel_ml_service.receiver.point_coordinates import COORDINATES

__all__ = ["scope_id"]

_NO_IDENTITY = COORDINATES | {wire.SEQ, wire.SEQ_POINTS}

_LONGEST, _SHORTENED = 100, 80
"""Characters of a name that tells its scope apart alone, and of one that a digest follows."""


def scope_id(name: str, version: str, attributes: Mapping[str, JsonValue]) -> str:
    """Return what tells a scope from others of its writer; a scope of this name alone is told by it again.

    Examples:
        >>> scope_id("my.library", "", {"ml.step": 3})
        'my.library'
        >>> scope_id("my.library", "1.0", {})
        'my.library@fc50bdc0e6502914'
    """
    kept = sorted((key, as_text(value)) for key, value in attributes.items() if key not in _NO_IDENTITY)
    if not (version or kept) and len(name) <= _LONGEST:
        return name
    everything = repr((name, version, kept)).encode("utf-8", "surrogatepass")
    return f"{name[:_SHORTENED]}@{blake2b(everything, digest_size=8).hexdigest()}"
