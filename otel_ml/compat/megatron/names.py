"""Megatron's names have spaces and `@`; here they are `_` and `_at_`, which need no quotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["published", "published_names"]


def published(name: str) -> str:
    """Return the name as every backend shows it.

    Examples:
        >>> published("lm loss validation"), published("acc@1")
        ('lm_loss_validation', 'acc_at_1')
    """
    return name.replace(" ", "_").replace("@", "_at_")


def published_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values under their published names."""
    return {published(name): value for name, value in values.items()}
