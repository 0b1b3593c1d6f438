"""Whether what a user passed is an amount."""

from __future__ import annotations

from typing import Any

__all__ = ["is_above_zero"]


def is_above_zero(value: Any) -> bool:
    """Return whether it is one number above 0, of whatever type; what cannot be compared is none.

    Examples:
        >>> is_above_zero(3), is_above_zero("3"), is_above_zero(float("nan"))
        (True, False, False)
    """
    try:
        return bool(value > 0)
    except (TypeError, ValueError, RuntimeError):  # no number; an array of several; a tensor of several
        return False
