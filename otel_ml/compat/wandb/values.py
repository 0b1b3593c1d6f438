"""What `log()` is given, sorted: nested dictionaries flattened, numbers apart from everything else."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.as_number import is_in_memory, without_dimensions
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.flatten import leaves

__all__ = ["is_plain", "named", "parted", "plain", "plain_numbers", "texts_and_lists"]

_NUMBERS: set[type] = {float, int, bool}
"""Types whose values are numbers; those of numpy are added when they are first seen."""


_NAMES = frozenset({str})

_OF_THE_ROW = frozenset({"_step", "_timestamp", "_runtime"})
"""What W&B says of a row itself: no metrics, also where a program gives them."""

_IN_A_LIST = frozenset({str, int, float, bool, list, dict, type(None)})
"""Types of which a list is made that the summary has as it was logged."""

_MOST_OF_A_LIST = 32
"""Elements of an array that W&B's summary has as a list; of more it has a histogram."""


def is_plain(row: Mapping[Any, Any]) -> bool:
    """Whether all are numbers of types that are known: the usual row, at the price of a look at its types."""
    return _are_numbers(row.values()) and _NAMES.issuperset(map(type, row)) and _OF_THE_ROW.isdisjoint(row)


def named(row: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return a row without keys that are not texts, for which W&B raises; they are said. What is the row's is left out.

    Examples:
        >>> named({"loss": 0.5, "_timestamp": 1795945398.4})
        {'loss': 0.5}

    Raises:
        TypeError: it is not a mapping.
    """
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is a mapping, not a {type(row).__name__}")
    unnamed = [key for key in row if not isinstance(key, str)]
    for key in unnamed:
        not_kept(f"log() with the key {safe_repr(key, 40)}", "TypeError: a key is a text. Its value is left out.")
    if not unnamed and _OF_THE_ROW.isdisjoint(row):
        return row
    return {key: value for key, value in row.items() if isinstance(key, str) and key not in _OF_THE_ROW}


def parted(data: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (numbers, the rest), by name; names inside a dictionary are joined with a dot, as W&B does.

    Examples:
        >>> parted({"train": {"loss": 0.5}, "lr": 0.1, "note": "warm"})
        ({'train.loss': 0.5, 'lr': 0.1}, {'note': 'warm'})
    """
    scalars: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in leaves(data):
        scalar = _scalar(value)
        if scalar is not None:
            scalars[name] = scalar
        elif not isinstance(value, Mapping):  # an empty one
            others[name] = _numbers_of(value) if isinstance(value, (list, tuple)) else _text_of_one(value)
    return scalars, others


def _numbers_of(items: Sequence[Any]) -> Any:
    """Return a list of numbers of numpy or torch as plain ones, those on a device as one tensor; else it as it is."""
    if not items or _IN_A_LIST.issuperset(map(type, items)):
        return items
    # One that is none decides for all: a list of numbers and names stays as it was given.
    found = [_scalar(item) for item in items]
    if any(one is None for one in found):
        return items
    if all(map(is_in_memory, found)):
        numbers = [_in_memory(one) for one in found]
        return items if None in numbers else numbers
    # Of a device: as one tensor they are copied together, and nothing waits for any of them here.
    stacked = _stacked(found)
    return items if stacked is None else stacked


def _stacked(tensors: Sequence[Any]) -> Any:
    """Return tensors of a device as one, for whose elements nothing waits; None of others."""
    if not all(hasattr(one, "detach") for one in tensors):
        return None
    import torch

    with suppress(Exception):  # of several devices
        return torch.stack([tensor.detach() for tensor in tensors])
    return None


def _are_numbers(values: Iterable[Any]) -> bool:
    return _NUMBERS.issuperset(map(type, values))


def plain_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those in memory, as numbers: a tensor would keep its graph. One on a device would be waited for."""
    found = {name: value if _are_numbers((value,)) else _in_memory(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if isinstance(value, numbers.Real)}


def texts_and_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the summary has beside numbers: texts, lists, and small arrays in memory as lists."""
    found = {name: value if _is_as_logged(value) else _listed(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _is_as_logged(value: Any) -> bool:
    """Whether the summary has a value as it was logged: a text, or a list that has no media in it."""
    return type(value) is str or (type(value) is list and _IN_A_LIST.issuperset(map(type, value)))


def plain(value: Any) -> Any:
    """Return numbers and small arrays of numpy or torch that are in memory as plain ones, anything else as it is."""
    scalar = _scalar(value)
    found = _listed(value) if scalar is None else _in_memory(scalar)
    return value if found is None else found


def _listed(value: Any) -> Any:
    """Return an array that W&B does not make a histogram of as a list; None of anything else."""
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype") or not is_in_memory(value):
        return None
    try:
        return value.tolist() if math.prod(shape) <= _MOST_OF_A_LIST else None
    except Exception:  # noqa: BLE001 (somebody's array; `otel_ml.log_histogram()` says what is wrong with it)
        return None


def _in_memory(value: Any) -> Any:
    if not is_in_memory(value):
        return None
    try:
        return value.item() if hasattr(value, "item") else value  # a fraction has none
    except Exception:  # noqa: BLE001 (somebody's number; `otel_ml.log()` says what is wrong with it)
        return None


def _scalar(value: Any) -> Any:
    kind = type(value)
    if kind in _NUMBERS:
        return value
    if isinstance(value, numbers.Real) and not _is_text(value):
        # From the second one on a row with such a type is a plain one, which `is_plain()` lets pass.
        _NUMBERS.add(kind)
        return value
    if not _has_one_element(value) or _is_text(value):
        return None
    return without_dimensions(value) if len(value.shape) else value


def _has_one_element(value: Any) -> bool:
    shape = getattr(value, "shape", None)
    return shape is not None and hasattr(value, "dtype") and all(size == 1 for size in shape)


def _is_text(value: Any) -> bool:
    """Whether numpy says that an array, or a scalar of its own, is of texts or times."""
    return getattr(getattr(value, "dtype", None), "kind", "f") in "MSTUm"


def _text_of_one(value: Any) -> Any:
    """Return the text of a scalar of numpy, or of an array with one element, that is text or time; else it as it is."""
    if not _has_one_element(value) or not _is_text(value):
        return value
    one = value.reshape(-1)[0]
    return one.decode(errors="replace") if isinstance(one, bytes) else str(one)
