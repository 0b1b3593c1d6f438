"""A number that a program hands in as a text, such as `"0.5"`: MLflow and TensorBoard take it for the number."""

from __future__ import annotations

from typing import Any

__all__ = ["number_of_text"]


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
