"""OTLP attribute values → Python."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from otel_ml_exporters.records import JsonValue

__all__ = ["LONGEST_NAME", "as_text", "attributes", "plain"]

LONGEST_NAME = 4096
"""Characters of an experiment's, a role's, a metric's name, the last with its attributes. Names are kept in tables."""

_DEPTH = 32
"""Nesting beyond it is cut: 20 deep is more than any program's parameters, and a hostile request recurses for ever."""


def attributes(pairs: Iterable[Any]) -> dict[str, JsonValue]:
    """Return `repeated KeyValue` as a dictionary; a key that comes twice keeps its last value."""
    return {pair.key: plain(pair.value) for pair in pairs}


def plain(value: Any, depth: int = 0) -> JsonValue:
    """Return an `AnyValue`; bytes inside become base64 text, as in OTLP/JSON."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(value, kind)
    convert = _NESTED.get(kind)
    if convert is None:
        scalar: JsonValue = found
        return scalar
    return convert(found, depth)


def as_text(value: JsonValue) -> str:
    """Return an attribute value as part of a series' identity.

    Examples:
        >>> as_text(True), as_text(7), as_text("math"), as_text([1, "a"])
        ('true', '7', 'math', '[1,"a"]')
    """
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _array(found: Any, depth: int) -> JsonValue:
    return [plain(item, depth + 1) for item in found.values] if depth < _DEPTH else None


def _mapping(found: Any, depth: int) -> JsonValue:
    return {pair.key: plain(pair.value, depth + 1) for pair in found.values} if depth < _DEPTH else None


def _bytes(found: bytes, _depth: int) -> JsonValue:
    return base64.b64encode(found).decode("ascii")


_NESTED: Mapping[str, Callable[[Any, int], JsonValue]] = {
    "array_value": _array,
    "kvlist_value": _mapping,
    "bytes_value": _bytes,
}
