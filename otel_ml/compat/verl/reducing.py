"""`reduce_metrics()`: the lists of a step's metrics, each as one value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.unrecordable_arguments import report_unreduced

__all__ = ["reduce_metrics"]


def reduce_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Make each list one value: the largest or smallest where a word of the name says so, else the mean.

    A word is letters and digits: `minmax_diff` is averaged. Of lists in lists, as several workers return
    them, all elements count; one that is NaN makes the result NaN. A `Metric` of verl says itself how its values become
    one. What is empty is taken out, for there is no value; what is not a list stays, and so does a list that cannot be
    reduced, which is reported.

    Returns:
        The same dictionary, which is changed, as in verl.

    Examples:
        >>> reduce_metrics({"reward/max": [1, 3], "loss": [1, 3], "minmax_diff": [1, 3], "none": [], "lr": 0.5})
        {'reward/max': 3, 'loss': 2.0, 'minmax_diff': 2.0, 'lr': 0.5}
        >>> reduce_metrics({"ratio_max": [[1.0, 5.0], [3.0]]})
        {'ratio_max': 5.0}
    """
    for name, values in list(metrics.items()):
        if _is_empty(values):
            del metrics[name]
        elif hasattr(values, "aggregate") or _has_elements(values):
            metrics[name] = _reduced(name, values)
    return metrics


def _reduced(name: str, values: Any) -> Any:
    try:
        return values.aggregate() if hasattr(values, "aggregate") else _of_elements(name, values)
    except Exception as error:  # noqa: BLE001 (values of users fail in any way)
        report_unreduced("reduce_metrics", error, f"{safe_repr(name)}: {safe_repr(values, 80)}")
        return values


def _of_elements(name: str, values: Any) -> Any:
    import numpy as np

    from otel_ml.compat.tracking.as_array import as_array

    # verl asks for `"max" in key`, which `minmax_diff` and `climax_rate` have, too: their largest value would be taken
    # for their mean.
    words = set(re.split(r"[\W_]+", name))
    reduce = np.max if "max" in words else np.min if "min" in words else np.mean
    # One by one: lists of different lengths do not make an array.
    arrays = [np.ravel(as_array(element)) for element in _elements(values)]
    return np.asarray(reduce(np.concatenate(arrays))).item()


def _elements(values: Any) -> Iterator[Any]:
    """Yield numbers, arrays and tensors; lists may have different lengths."""
    for value in values if _is_sequence(values) else (values,):
        if _is_sequence(value):
            yield from _elements(value)
        else:
            yield value


def _has_elements(values: Any) -> bool:
    return _is_sequence(values) or bool(getattr(values, "ndim", 0))


def _is_sequence(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, (str, bytes))


def _is_empty(values: Any) -> bool:
    if hasattr(values, "aggregate"):
        # A `Metric` of verl: its aggregate() fails where it has no values.
        values = values.values
    if _is_sequence(values):
        return all(map(_is_empty, values))
    return bool(getattr(values, "ndim", 0)) and len(values) == 0
