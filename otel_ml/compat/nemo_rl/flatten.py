"""Nested mappings as one level of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from otel_ml.flatten import leaves

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
    found = _with_lists(d, sep) if expand_lists else leaves(d, sep)
    return {name: value for name, value in found if not isinstance(value, Mapping)}


def _with_lists(d: Mapping[str, Any], sep: str, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in leaves(d, sep, before):
        if not isinstance(value, list):
            yield name, value
            continue
        for number, item in enumerate(value):
            below = f"{name}{sep}{number}"
            yield from _with_lists(item, sep, f"{below}{sep}") if isinstance(item, Mapping) else [(below, item)]
