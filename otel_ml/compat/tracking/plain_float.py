"""A number that a program hands in, as the float that is remembered of it."""

from __future__ import annotations

import numbers
from typing import Any

__all__ = ["plain_float"]


def plain_float(value: Any) -> float | None:
    """Return a number as a float; None for what is none, and for one that has none, such as 10**400."""
    if not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except Exception:  # noqa: BLE001 (somebody's number; `otel_ml.log()` says what is wrong with it)
        return None
