"""`reduce_metrics()`: lists of one process become numbers, by the reduction their key names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.roll.tags import TAGS, reduction_of
from otel_ml.compat.tracking.unrecordable_arguments import report_unreduced

__all__ = ["is_several", "reduce_metrics", "reduce_metrics_list"]

_REDUCE: dict[str, Callable[[Any], Any]] = {
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "p50": lambda values: np.percentile(values, 50),
    "p99": lambda values: np.percentile(values, 99),
    "std": np.std,
    "sum": np.sum,
}


def is_several(value: Any) -> bool:
    """Whether a value is a list, a tuple or an array with a dimension: something to be reduced."""
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def reduce_metrics(metrics: dict[str, Any], reduce_func: Callable[[Any], Any] = np.mean) -> dict[str, Any]:
    """Reduce lists, tuples and arrays in place, and return the same dictionary; keys stay as they are.

    Args:
        metrics: key → value. Numbers, tensors and empty sequences are left as they are.
        reduce_func: for keys that name no reduction.

    Examples:
        >>> reduce_metrics({"loss@sum": [1.0, 2.0], "score/max": [1.0, 3.0]})["loss@sum"]
        3.0
    """
    for key, value in metrics.items():
        if _is_sequence(value) and len(value):
            # Not "mean" where none is named: then `reduce_func` counts.
            tag = reduction_of(key, default="")
            metrics[key] = _reduced(key, value, _REDUCE[tag] if tag in TAGS else reduce_func)
    return metrics


def _is_sequence(value: Any) -> bool:
    return is_several(value) or (isinstance(value, Sequence) and not isinstance(value, (str, bytes)))


def _reduced(key: str, values: Any, reduce_func: Callable[[Any], Any]) -> Any:
    """Return values as one number, a float as in ROLL; as they are where they cannot be reduced, which is reported."""
    try:
        return float(reduce_func(values))
    except Exception as error:  # noqa: BLE001 (values and functions of users fail in any way)
        report_unreduced("reduce_metrics", error, f"{safe_repr(key)}: {safe_repr(values, 80)}")
        return values


def reduce_metrics_list(
    metrics_list: Sequence[dict[str, Any]], reduce_func: Callable[[Any], Any] = np.mean
) -> dict[str, Any]:
    """Reduce dictionaries of several workers to one, every key by `reduce_func`, as in ROLL.

    Each worker has reduced its own values by what the key names: a deviation of deviations would be of nothing. A key
    that some of them lack is reduced over the others.
    """
    gathered: dict[str, list[Any]] = {}
    for metrics in metrics_list:
        for key, value in metrics.items():
            gathered.setdefault(key, []).extend(value if is_several(value) else [value])
    return {key: _reduced(key, values, reduce_func) for key, values in gathered.items() if values}
