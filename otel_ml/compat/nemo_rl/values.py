"""What a value given to `log_metrics()` is recorded as: one number, a list's summary, a text or a table."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otel_ml.compat.nemo_rl.flatten import flatten_dict
from otel_ml.compat.tracking.as_number import without_dimensions

__all__ = ["Values", "values_of"]

_PLAIN = frozenset({float, int, bool})

_PER_WORKER = "generation_logger_metrics"
"""{metric: {worker: [samples]}}: the samples of all workers are one list."""

Table = tuple[Any, Sequence[str] | None]
"""What `otel_ml.log_table()` takes: data and columns."""

Summary = Mapping[str, Any]
"""Name → value; `mean`, `p50`, `p90`, `max`."""


@dataclass(frozen=True, slots=True)
class Values:
    """Metrics by name, ready to be recorded; what `otel_ml.log()` refuses is among the numbers, and said by it."""

    numbers: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)


def values_of(metrics: Mapping[str, Any]) -> Values:
    """Return numbers, texts and tables (W&B's, pandas') of `metrics`; nested names are joined by `/`.

    Lists, arrays and tensors of several elements become `<name>/mean`, `/p50`, `/p90` and `/max`; an empty one is
    left out. A tensor on a device stays there: nothing waits for it.
    """
    found = Values()
    for name, value in metrics.items():
        # The usual value; nothing has to be asked of it.
        if type(value) in _PLAIN:
            found.numbers[name] = value
        else:
            for leaf, item in _leaves(name, value).items():
                _add(found, leaf, item)
    return found


def _leaves(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {name: value}
    if name.rpartition("/")[2] == _PER_WORKER:
        value = {metric: _of_all_workers(samples) for metric, samples in value.items()}
    return flatten_dict({name: value}, sep="/", expand_lists=False)


def _of_all_workers(samples: Any) -> Any:
    if not isinstance(samples, Mapping):
        return samples
    return [item for of_one in samples.values() for item in (of_one if isinstance(of_one, list) else [of_one])]


def _add(found: Values, name: str, value: Any) -> None:
    if isinstance(value, str):
        found.texts[name] = value
        return
    try:
        table = _table(value)
        if table is None:
            found.numbers.update(_numbers(name, value))
        else:
            found.tables[name] = table
    except Exception:  # noqa: BLE001 (users' objects fail in any way; `otel_ml.log()` says what it is given)
        found.numbers[name] = value


def _table(value: Any) -> Table | None:
    if hasattr(value, "itertuples"):
        return value, None
    # W&B's tables, and those of compat.wandb, without importing either.
    columns, rows = getattr(value, "columns", None), getattr(value, "data", None)
    return (rows, columns) if isinstance(columns, list) and isinstance(rows, list) else None


def _numbers(name: str, value: Any) -> Mapping[str, Any]:
    if isinstance(value, (list, tuple)):
        return _named(name, _summary_of_items(value), value)
    if getattr(value, "ndim", 0) == 0:
        return {name: value}
    # A tensor's `size` is a method.
    size = value.numel() if hasattr(value, "numel") else value.size
    if size == 1:
        return {name: without_dimensions(value)}
    if hasattr(value, "quantile"):  # a tensor, on whatever device it is
        return _named(name, _summary_of_tensor(value), value)
    return _named(name, _summary_of_array(np.asarray(value)), value)


def _named(name: str, summary: Summary | None, value: Any) -> Mapping[str, Any]:
    if summary is None:
        return {name: value} if len(value) else {}
    return {f"{name}/{key}": number for key, number in summary.items()}


def _summary_of_items(items: Sequence[Any]) -> Summary | None:
    known = [number for item in items if (number := _number(item)) is not None]
    # As in NeMo RL a flag among numbers is none of them; of flags alone the mean is how many are true.
    known = known or [float(item) for item in items if isinstance(item, bool)]
    return _summary_of_array(np.asarray(known, np.float64)) if known else None


def _number(item: Any) -> float | None:
    if isinstance(item, bool) or item is None:
        return None
    if isinstance(item, numbers.Real):
        return float(item)
    is_one = getattr(item, "ndim", None) == 0 and hasattr(item, "item")
    return float(item) if is_one else None


def _summary_of_array(array: Any) -> Summary | None:
    # Numbers and truth values; texts, times and objects have no quantiles, and complex numbers no order.
    if array.dtype.kind not in "fiub" or not array.size:
        return None
    found = array.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):  # between two infinities lies NaN, which is what is shown
        return {
            "mean": float(found.mean()),
            "p50": float(np.percentile(found, 50)),
            "p90": float(np.percentile(found, 90)),
            "max": float(found.max()),
        }


def _summary_of_tensor(tensor: Any) -> Summary | None:
    if not tensor.numel() or tensor.is_complex():
        return None
    found = tensor.detach().flatten()
    # quantile() takes these two alone.
    found = found if str(found.dtype) in {"torch.float32", "torch.float64"} else found.float()
    return {"mean": found.mean(), "p50": found.quantile(0.5), "p90": found.quantile(0.9), "max": found.max()}
