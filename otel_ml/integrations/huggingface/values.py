"""What the frameworks of Hugging Face log: numbers, and now and then a text or a list."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from statistics import fmean
from typing import Any

import otel_ml

__all__ = ["log_values"]


def log_values(values: Mapping[str, Any], step: int | None) -> None:
    """Record texts as texts, and everything else as a value; of a name's values at one step the last counts.

    What is several numbers, such as the score of each class, is their mean, as for `otel_ml.log()`.
    """
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    numbers = {name: _one(value) for name, value in values.items() if name not in texts}
    otel_ml.log(numbers, step=step, within="last")
    for name, text in texts.items():
        otel_ml.log_text(name, text, step=step)


def _one(value: Any) -> Any:
    """Return the mean of a list or an array: of several records of one call the last would count."""
    if getattr(value, "ndim", 0):
        return value.float().mean() if hasattr(value, "detach") else value.mean()
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, float)) for item in value):
        with suppress(OverflowError):  # a whole number that no float is: said by otel_ml.log()
            return fmean(value)
    return value
