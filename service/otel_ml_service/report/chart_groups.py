"""A run's series as charts, in groups: a metric with its further reductions in one, which rank it was as a strip."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.published_name import is_own
from otel_ml.wire.reductions import row_of
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import Curve, chart, last_value, strip
from otel_ml_service.report.markup import Markup, cell_table, details, joined, section, tag
from otel_ml_service.stored_runs.run_history import SeriesName

__all__ = ["Charts", "bookkeeping_section", "charts_of", "curve_section", "drawn", "in_order", "is_rank"]

_NUMBER = re.compile(r"\d+")
_FAMILY = 8
"""Series that differ in numbers only; of more, none is worth more than a metric of the whole job."""

_PARTS = re.compile(r"(\d+)")
_OPEN = 24
"""Charts of a group that is open from the beginning."""
_OWN = 80
"""Charts of what otel_ml says about itself, at most."""

Charts = Mapping[SeriesName, Sequence[Curve]]


def charts_of(run: Contents) -> dict[SeriesName, list[Curve]]:
    """Return the charts of a run: a metric with its further reductions in one, what a user recorded first."""
    charts: dict[SeriesName, list[Curve]] = {}
    for key in in_order(run.history.series):  # in which `loss` comes before `loss/max`
        base, _, last = key.name.rpartition("/")
        series = run.history.series[key]
        row = row_of(last)
        # Of another scale, as a count beside a loss, it would flatten the metric.
        if row is not None and row.scale == "values" and not is_rank(key.name) and SeriesName(key.axis, base) in charts:
            charts[SeriesName(key.axis, base)].append(Curve(last, series))
        else:
            charts[key] = [Curve(key.name, series)]
    return charts


_RANK = re.compile(r"(?:.*/)?(arg(?:max|min)|time/exposed/.+/rank|otel_ml/straggler/rank)")


def is_rank(name: str) -> bool:
    """Whether a series says which rank, from step to step: a strip of colors, no curve.

    Examples:
        >>> [is_rank(name) for name in ("time/forward/argmax", "time/exposed/forward/rank", "argmax", "lora/rank")]
        [True, True, True, False]
    """
    return _RANK.fullmatch(name) is not None


def in_order(keys: Iterable[SeriesName]) -> list[SeriesName]:
    """Return what a user recorded first, then timers, what is on the axis `time`, and families: one for each layer."""
    # Gone over twice: how large a family is has to be known before anything is sorted.
    found = list(keys)
    families = Counter(_family(key) for key in found)

    def importance(key: SeriesName) -> tuple[bool, bool, bool, bool, list[str]]:
        is_large = families[_family(key)] > _FAMILY
        return is_own(key.name), is_large, key.axis == TIME_AXIS, "time/" in key.name, _natural(key.name)

    return sorted(found, key=importance)


def _natural(name: str) -> list[str]:
    """Return what sorts layer 2 before layer 10."""
    # Compared as text, numbers of as many digits are in their order: 20 hold any of 64 bits.
    return [part.zfill(20) if part.isdigit() else part for part in _PARTS.split(name)]


def _family(key: SeriesName) -> str:
    return _NUMBER.sub("#", key.name)


Groups = dict[str, list[tuple[SeriesName, Sequence[Curve]]]]

Figure = Callable[[SeriesName, Sequence[Curve]], Markup]
"""Draws a chart, or only its place."""


def drawn(key: SeriesName, curves: Sequence[Curve]) -> Markup:
    """Return a chart with its picture and its numbers."""
    if is_rank(key.name):
        return strips(key, curves)
    return chart(key.name, key.axis, curves)


def strips(key: SeriesName, curves: Sequence[Curve]) -> Markup:
    """Return a strip a run."""
    named = len(curves) > 1
    return joined(strip(f"{key.name}, {one.label}" if named else key.name, key.axis, one.series) for one in curves)


def curve_section(charts: Charts, figure: Figure, most: int) -> Markup:
    """Return the curves of a user in groups, by what their names begin with; of more than `most`, the last values."""
    users = {key: curves for key, curves in charts.items() if not is_own(key.name)}
    shown, left_out = list(users.items())[:most], list(users.items())[most:]
    groups: Groups = {}
    for key, curves in shown:
        groups.setdefault(_group(key), []).append((key, curves))
    groups = _without_singles(groups)
    parts = [_opened(name, found, figure, is_alone=len(groups) == 1) for name, found in groups.items()]
    more = details(f"{len(left_out)} more", cell_table(("series", "last value"), _last_values(left_out)))
    return section("Curves", _LOOK, *parts, more) if parts or more else Markup("")


_LOOK = Markup(
    '<div class="tools look"><label><input type="checkbox" autocomplete="off" data-look="log"> logarithmic</label> '
    '<label>smooth <input type="range" autocomplete="off" data-look="smooth" min="0" max="0.98" step="0.02" value="0">'
    "</label> "
    '<label><input type="checkbox" autocomplete="off" data-look="whole"> with warm-up</label> '
    '<label class="several"><input type="checkbox" autocomplete="off" data-look="time"> roles on one axis of time'
    "</label></div>"
)


def _group(key: SeriesName) -> str:
    prefix, slash, _ = key.name.partition("/")
    if _EXPOSED.match(key.name):
        return "time/exposed"
    if key.axis == TIME_AXIS and not slash:
        return "over time"
    if key.axis not in {DEFAULT_AXIS, TIME_AXIS} and prefix != key.axis:
        return f"{prefix}, {key.axis}" if slash else key.axis
    return prefix if slash else "metrics"


def _without_singles(groups: Groups) -> Groups:
    """Return the groups; those of a single chart are put together, the first ones first."""
    # Put in first, so that this group comes first.
    joint: Groups = {"metrics": []}
    for name, found in groups.items():
        joint.setdefault("metrics" if len(found) == 1 else name, []).extend(found)
    return {name: found for name, found in joint.items() if found}


_EXPOSED = re.compile(r"(?:.*/)?time/exposed/")
"""The account of each step, of which "Where the time goes" is the sum: for who looks for it."""


def _opened(
    name: str, charts: Sequence[tuple[SeriesName, Sequence[Curve]]], figure: Figure, *, is_alone: bool
) -> Markup:
    figures = tag("div", *(figure(key, curves) for key, curves in charts), class_="charts")
    if is_alone:
        return figures
    opened = None if _EXPOSED.match(f"{name}/") or len(charts) > _OPEN else ""
    return tag("details", tag("summary", f"{name} ({len(charts)})"), figures, open=opened, class_="group")


def bookkeeping_section(charts: Charts, figure: Figure) -> Markup:
    """Return the curves of otel_ml about itself."""
    own = [(key, curves) for key, curves in charts.items() if is_own(key.name)][:_OWN]
    figures = tag("div", *(figure(key, curves) for key, curves in own), class_="charts") if own else Markup("")
    return details("What otel_ml says about itself", figures) if own else Markup("")


def _last_values(charts: Iterable[tuple[SeriesName, Sequence[Curve]]]) -> Iterator[tuple[str, float]]:
    for key, curves in charts:
        # Of one run the first curve is the metric, and others its further reductions; of several each is a run's.
        is_of_one = curves[0].label == key.name
        for curve in curves[:1] if is_of_one else curves:
            yield key.name if is_of_one else f"{key.name}, {curve.label}", last_value(curve.series)
