"""The card that `torch.cuda` is at the moment."""

from __future__ import annotations

from typing import Any

__all__ = ["ACTIVE", "active_card"]

ACTIVE: list[Any] = []


def active_card() -> Any:
    """Return the `FakeCuda` of the innermost block."""
    return ACTIVE[-1]
