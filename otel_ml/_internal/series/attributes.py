"""The attributes that tell series of one name apart."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml._internal.safe_repr import text_of

__all__ = ["Attributes", "exact", "identity"]

Attributes = tuple[tuple[str, str | bool | int | float], ...]
"""Sorted by key."""


def identity(attributes: Mapping[str, object]) -> Attributes:
    """Return attributes in the one order and with the types OpenTelemetry has; others become text."""
    # A dictionary first: 1 and "1" are one key, and two items of one key would be sorted by their values.
    found = {
        text_of(key): value if isinstance(value, (str, bool, int, float)) else text_of(value)
        for key, value in attributes.items()
    }
    return tuple(sorted(found.items()))


def exact(attributes: Mapping[str, object]) -> tuple[object, ...]:
    """Return what attributes are looked up by: to Python 1, 1.0 and True are one key, in OpenTelemetry they are three.

    Examples:
        >>> exact({"k": 1}) == exact({"k": 1}), exact({"k": 1}) == exact({"k": True})
        (True, False)
    """
    return (*attributes.items(), *map(type, attributes.values()))
