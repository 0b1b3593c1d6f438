"""What a program hands in as a number: a text, which MLflow and TensorBoard take for it, or a type of its own."""

from __future__ import annotations

import numbers
from typing import Any

__all__ = ["in_memory", "number_of_text", "plain_float"]


def number_of_text(text: str) -> Any:
    """Return the number, or the text where it is not one; `otel_ml.log()` says what is wrong with it.

    Examples:
        >>> number_of_text("0.5"), number_of_text("high")
        (0.5, 'high')
    """
    try:
        return float(text)
    except ValueError:
        return text


def in_memory(value: Any) -> Any:
    """Return the number of an array or a tensor of one element; one on a device as it is: reading it would wait."""
    device = getattr(value, "device", "cpu")  # torch's has a type, numpy's is a text
    if not hasattr(value, "item") or getattr(device, "type", device) != "cpu":
        return value
    try:
        return value.item()
    except Exception:  # noqa: BLE001 (several elements, or somebody's object; `otel_ml.log()` says what is wrong with it)
        return value


def plain_float(value: Any) -> float | None:
    """Return a number as a float; None for what is none, and for one that has none, such as 10**400."""
    if not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except Exception:  # noqa: BLE001 (somebody's number; `otel_ml.log()` says what is wrong with it)
        return None
