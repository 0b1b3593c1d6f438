"""Nested mappings as one level of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["leaves"]


def leaves(tree: Mapping[Any, Any], separator: str = ".", before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each leaf, keys joined; a mapping without entries is a leaf.

    Examples:
        >>> dict(leaves({"optimizer": {"lr": 0.1, "groups": {}}, "seed": 1}))
        {'optimizer.lr': 0.1, 'optimizer.groups': {}, 'seed': 1}
    """
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, separator, f"{before}{key}{separator}")
        else:
            yield f"{before}{key}", value
