"""Nested mappings as one level of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["flatten_dict"]


def flatten_dict(d: Mapping[str, Any], sep: str = ".", expand_lists: bool = True) -> dict[str, Any]:
    """Return `d` with its nested keys joined by `sep`; the items of a list are numbered from 0.

    Args:
        d: may hold mappings, and lists of them.
        sep: stands between a key and the one below it.
        expand_lists: give each item of a list a name; else a list stays one value.

    Examples:
        >>> flatten_dict({"policy": {"lr": 0.1, "betas": [0.9, 0.95]}})
        {'policy.lr': 0.1, 'policy.betas.0': 0.9, 'policy.betas.1': 0.95}
        >>> flatten_dict({"a": [{"b": 1}, {"c": 2}]}, sep="/")
        {'a/0/b': 1, 'a/1/c': 2}
        >>> flatten_dict({"a": {"b": [1, 2]}}, expand_lists=False)
        {'a.b': [1, 2]}
    """
    return dict(_leaves(d, "", sep, expand_lists))


def _leaves(d: Mapping[str, Any], above: str, sep: str, expand_lists: bool) -> Iterator[tuple[str, Any]]:
    for key, value in d.items():
        name = f"{above}{sep}{key}" if above else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, name, sep, expand_lists)
        elif isinstance(value, list) and expand_lists:
            for number, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from _leaves(item, f"{name}{sep}{number}", sep, expand_lists)
                else:
                    yield f"{name}{sep}{number}", item
        else:
            yield name, value
