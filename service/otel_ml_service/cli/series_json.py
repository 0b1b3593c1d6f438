"""Metrics as programs read them: JSON without NaN and infinities, which are the texts `nan`, `inf` and `-inf`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from otel_ml.wire.published_name import is_own

__all__ = ["Json", "json_value", "metric_json"]

Json = Any
"""Whatever JSON has."""


def metric_json(axis: str, name: str, found: Mapping[int, float]) -> dict[str, Json]:
    """Return what a series has: how many steps, its last value, and the bounds of those that are finite."""
    values = list(found.values())
    # The smallest of values among which is NaN would depend on their order.
    finite = [value for value in values if math.isfinite(value)]
    bounds = {"min": min(finite), "max": max(finite)} if finite else {}
    last = json_value(values[-1])
    return {"axis": axis, "name": name, "steps": len(values), "last": last, **bounds, "own": is_own(name)}


def json_value(value: object) -> Json:
    """Return a value, also one that holds others, as JSON may have it.

    Examples:
        >>> json_value({"lr": 0.1, "bounds": [0, float("inf")]})
        {'lr': 0.1, 'bounds': [0, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(name): json_value(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
