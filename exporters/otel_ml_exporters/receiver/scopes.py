"""Instrumentation scopes: two meters of a process may use one name, and are streams of their own (CONTRACT §4)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from otel_ml.wire import attributes as wire
from otel_ml_exporters.receiver.coordinates import COORDINATES
from otel_ml_exporters.receiver.values import as_text
from otel_ml_exporters.records import JsonValue

__all__ = ["scope_id"]

_NO_IDENTITY = COORDINATES | {wire.SEQ, wire.SEQ_POINTS}


def scope_id(name: str, version: str, attributes: Mapping[str, JsonValue]) -> str:
    """Return what tells a scope from others of its writer; "" for one that says nothing.

    Examples:
        >>> scope_id("", "", {"ml.step": 3})
        ''
        >>> scope_id("a", "", {}) == scope_id("a", "1", {})
        False
    """
    kept = sorted((key, as_text(value)) for key, value in attributes.items() if key not in _NO_IDENTITY)
    if not (name or version or kept):
        return ""
    return blake2b(repr((name, version, kept)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
