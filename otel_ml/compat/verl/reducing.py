"""`reduce_metrics()`: the lists of a step's metrics, each as one value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["reduce_metrics"]


def reduce_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return each list of values as one: the largest or smallest where a word of the name says so, else the mean.

    A word is what stands between `/` and `_`: `minmax_diff` is averaged. Of lists in lists, as several workers return
    them, all elements count; one that is NaN makes the result NaN. A `Metric` of verl says itself how its values become
    one. What is empty is left out, for there is no value; what is not a list stays.

    Examples:
        >>> reduce_metrics({"reward/max": [1, 3], "loss": [1, 3], "minmax_diff": [1, 3], "none": [], "lr": 0.5})
        {'reward/max': 3, 'loss': 2.0, 'minmax_diff': 2.0, 'lr': 0.5}
        >>> reduce_metrics({"ratio_max": [[1.0, 5.0], [3.0]]})
        {'ratio_max': 5.0}
    """
    return {name: _reduced(name, values) for name, values in metrics.items() if not _is_empty(values)}


def _reduced(name: str, values: Any) -> Any:
    if hasattr(values, "aggregate"):
        return values.aggregate()
    if not _has_elements(values):
        return values
    import numpy as np

    words = set(re.split(r"[/_]", name))
    reduce = np.max if "max" in words else np.min if "min" in words else np.mean
    elements = np.concatenate([np.ravel(element) for element in _elements(values)])
    return reduce(elements).item()


def _elements(values: Any) -> Iterator[Any]:
    """Yield numbers, arrays and tensors; lists may have different lengths."""
    for value in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(value, (list, tuple)):
            yield from _elements(value)
        else:
            yield value.detach() if hasattr(value, "detach") else value


def _has_elements(values: Any) -> bool:
    return isinstance(values, (list, tuple)) or bool(getattr(values, "ndim", 0))


def _is_empty(values: Any) -> bool:
    if hasattr(values, "aggregate"):
        values = values.values
    if isinstance(values, (list, tuple)):
        return all(map(_is_empty, values))
    return bool(getattr(values, "ndim", 0)) and len(values) == 0
