"""The CUSTOM SCALARS tab: a chart for each metric with its reductions, a band where there are `x/min` and `x/max`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from otel_ml.wire.protobuf import field, integer, text
from otel_ml.wire.published_name import is_own
from otel_ml.wire.reductions import REDUCTIONS
from otel_ml_exporters.backends.tensorboard.summary import plugin_value, string_tensor

__all__ = ["MOST_CHARTS", "bands", "layout_value", "metric_of"]

MOST_CHARTS = 200
"""TensorBoard draws all charts of a layout at once; a page of more is of no use, and each change writes all again."""

_REDUCTIONS = "|".join([r"rank_\d+", r"p\d+", *(name for name, row in REDUCTIONS.items() if row.publishes == "value")])
_REDUCTION = re.compile(rf"/(?:{_REDUCTIONS})$")

_TAG = "custom_scalars__config__"


def bands(candidates: Iterable[str], names: Set[str]) -> list[str]:
    """Return what gets a band because of `candidates`: each `x` where `x`, `x/min` and `x/max` are in `names`.

    Examples:
        >>> bands(["loss/max"], {"loss", "loss/min", "loss/max", "lr"})
        ['loss']
    """
    stems = dict.fromkeys(name.removesuffix("/min").removesuffix("/max") for name in candidates)
    return [stem for stem in stems if {stem, f"{stem}/min", f"{stem}/max"} <= names]


def metric_of(name: str) -> str | None:
    """Return the metric that a name is a reduction of, or itself; None of what otel_ml says about itself.

    Examples:
        >>> [metric_of(name) for name in ("loss/p99", "loss/rank_3", "time/forward", "evaluator/otel_ml/step")]
        ['loss', 'loss', 'time/forward', None]
    """
    if is_own(name):
        return None
    return _REDUCTION.sub("", name)


def layout_value(metrics: Iterable[str], banded: Set[str]) -> bytes:
    """Return the layout; categories are what stands before the first `/` of a name. The last one written counts."""
    # A dict keeps the order in which names came: the group of the first metric is the first on the page.
    categories: dict[str, list[str]] = {}
    for name in metrics:
        categories.setdefault(name.partition("/")[0], []).append(name)
    layout = b"".join(
        field(2, text(1, title) + b"".join(_band(name) if name in banded else _lines(name) for name in members))
        for title, members in categories.items()
    )
    return plugin_value(_TAG, "custom_scalars", string_tensor(integer(1, 0) + layout))


def _lines(name: str) -> bytes:
    return field(2, text(1, name) + field(2, text(1, f"^{re.escape(name)}(/({_REDUCTIONS}))?$")))


def _band(name: str) -> bytes:
    series = text(1, name) + text(2, f"{name}/min") + text(3, f"{name}/max")
    return field(2, text(1, name) + field(3, field(1, series)))
