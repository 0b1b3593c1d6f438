"""Closed steps → history rows of W&B."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from otel_ml_exporters.backends.wandb.names import row_keys
from otel_ml_exporters.records import JsonValue, StepRecord

__all__ = ["AMENDMENT", "ATTEMPT", "MAX_ROW_BYTES", "axis_key", "fitting", "plain", "step_row", "step_values"]

ATTEMPT = "otel_ml/attempt"
AMENDMENT = "otel_ml/amendment"

MAX_ROW_BYTES = 10_000_000
"""The client skips a history line of more than 10,383,360 bytes with a warning only."""

_BYTES_PER_VALUE = 32
"""Of a line, at most, beside the key: 24 characters of a double, two quotes, and what separates them."""


def axis_key(axis: str) -> str:
    """Return the key that holds the index on an axis."""
    return f"otel_ml/{axis}"


def step_values(record: StepRecord) -> dict[str, Any]:
    """Return the values of a closed step by the keys that they have in a row.

    Examples:
        >>> step_values(StepRecord(7, "trainer", "step", 3, 0, 1.5, {"loss": 0.25, "_step": 2.0}))
        {'loss': 0.25, 'metric/_step': 2.0}
    """
    values = dict(zip(row_keys(record.values), record.values.values(), strict=True))
    # Nearly always so: then no value is made anew.
    if set(map(type, values.values())) <= {float}:
        return values
    return {key: _number(value) for key, value in values.items()}


def step_row(record: StepRecord, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that holds `values` of a closed step; `_step` is not part of it.

    Examples:
        >>> step_row(StepRecord(7, "trainer", "step", 3, 0, 1.5, {}), {"loss": 0.25})
        {'loss': 0.25, 'otel_ml/step': 3, 'otel_ml/attempt': 0, '_timestamp': 1.5}
    """
    row = dict(values)
    row[axis_key(record.axis)] = record.step
    row[ATTEMPT] = record.attempt
    row["_timestamp"] = record.time
    if record.amendment:
        row[AMENDMENT] = 1
    return row


def fitting(row: Mapping[str, Any], limit: int = MAX_ROW_BYTES) -> tuple[dict[str, Any], int]:
    """Return as much of `row` as W&B takes in one line, and how many values are left out.

    The keys of the row's place (axis, attempt, time) are its last ones and always kept.
    """
    size = len("".join(row)) + _BYTES_PER_VALUE * len(row)
    if size <= limit:
        return dict(row), 0
    kept = dict(row)
    # From the end: the row's own place is kept, and of the metrics those that came first.
    for key in [key for key in row if not key.startswith(("otel_ml/", "_timestamp"))][::-1]:
        if size <= limit:
            break
        size -= len(key) + _BYTES_PER_VALUE
        del kept[key]
    return kept, len(row) - len(kept)


def plain(value: JsonValue) -> Any:
    """Return what W&B's config and summary can hold; they turn NaN into null, so it travels as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _number(value: Any) -> float | str:
    """Return a double; anything else as text: an object would lose the whole row."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
