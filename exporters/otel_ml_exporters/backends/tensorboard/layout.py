"""The CUSTOM SCALARS tab: one chart with a band for each `x` that also has `x/min` and `x/max`."""

from __future__ import annotations

from collections.abc import Iterable, Set

from otel_ml.wire.protobuf import field, integer, text
from otel_ml_exporters.backends.tensorboard.summary import plugin_value, string_tensor

__all__ = ["MOST_CHARTS", "bands", "layout_value"]

MOST_CHARTS = 200
"""TensorBoard draws all charts of a layout at once; a page of more is of no use, and each change writes all again."""

_TAG = "custom_scalars__config__"


def bands(candidates: Iterable[str], names: Set[str]) -> list[str]:
    """Return what gets a band because of `candidates`: each `x` where `x`, `x/min` and `x/max` are in `names`.

    Examples:
        >>> bands(["loss/max"], {"loss", "loss/min", "loss/max", "lr"})
        ['loss']
    """
    stems = dict.fromkeys(name.removesuffix("/min").removesuffix("/max") for name in candidates)
    return [stem for stem in stems if {stem, f"{stem}/min", f"{stem}/max"} <= names]


def layout_value(charts: Iterable[str]) -> bytes:
    """Return the layout; categories are what stands before the first `/` of a name. The last one written counts."""
    categories: dict[str, list[str]] = {}
    for name in charts:
        categories.setdefault(name.partition("/")[0], []).append(name)
    layout = b"".join(
        field(2, text(1, title) + b"".join(map(_chart, members))) for title, members in categories.items()
    )
    return plugin_value(_TAG, "custom_scalars", string_tensor(integer(1, 0) + layout))


def _chart(name: str) -> bytes:
    series = text(1, name) + text(2, f"{name}/min") + text(3, f"{name}/max")
    return field(2, text(1, name) + field(3, field(1, series)))
