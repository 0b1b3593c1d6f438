"""One or several runs as one HTML page that needs no network, no script of others and no wide screen."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.reductions import row_of
from otel_ml_exporters.records import Span
from otel_ml_service.report import sections
from otel_ml_service.report.answer import answer, troubles
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import Curve, chart, strip
from otel_ml_service.report.markup import Markup, cell_table, details, joined, section, tag
from otel_ml_service.report.scalability import scaling, yardstick
from otel_ml_service.report.step_view import StepName, by_step, step_view
from otel_ml_service.report.style import STYLE, page_script
from otel_ml_service.stored_runs.run_history import SeriesName, is_own

__all__ = [
    "bookkeeping_section", "charts_of", "curve_section", "document", "is_rank", "page", "parts", "step_views",
]  # fmt: skip

_NOTHING: Mapping[StepName, Sequence[Span]] = MappingProxyType({})
_BOXES = 6_000
"""Spans of all step views of a page."""

_NUMBER = re.compile(r"\d+")
_FAMILY = 8
"""Series that differ in numbers only; of more, none is worth more than a metric of the whole job."""

_CHARTS = 80
"""Charts of a page; the other series are listed with their last value."""


def page(runs: Sequence[Contents], steps: Mapping[StepName, Sequence[Span]] = _NOTHING) -> str:
    """Return the report of runs, the first one named in the title.

    Args:
        runs: one, or several that are put side by side.
        steps: further steps of a single run whose spans the page has: those that findings name.
    """
    title = runs[0].id if len(runs) == 1 else f"{len(runs)} runs of {runs[0].experiment}"
    body = _one(runs[0], steps) if len(runs) == 1 else _several(runs)
    return document(title, joined([body, tag("footer", "Made by otel-ml report.")]))


def document(title: str, body: str, script: str | None = None) -> str:
    """Return a page that loads nothing from elsewhere, and runs nothing but its own script."""
    program = page_script() if script is None else script
    policy = f"default-src 'none'; img-src data:; connect-src 'self'; style-src 'unsafe-inline'; script-src '{_sha256(program)}'"
    head = joined(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            # Whatever a name or a text holds.
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
            Markup('<link rel="icon" href="data:,">'),
            tag("title", title),
            Markup(f"<style>{STYLE}</style>"),
        ]
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{joined([body])}<script>{program}</script></body></html>\n'
    )


def _sha256(program: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(program.encode()).digest()).decode("ascii")


def _one(run: Contents, steps: Mapping[StepName, Sequence[Span]]) -> Markup:
    shown = charts_of(run)
    return joined(parts(run, _curves(shown), _bookkeeping(shown), _step_section(run, steps)).values())


def parts(run: Contents, curves: str, bookkeeping: str, steps: str, *, is_live: bool = False) -> dict[str, Markup]:
    """Return what a page of a run is made of, by name, in its order: the answer first."""
    return {
        "title": _title(run),
        "answer": answer(run, is_live=is_live),
        "ranks": sections.findings(run),
        "steps": Markup(steps),
        "curves": Markup(curves),
        "timing": sections.timing(run),
        "samples": joined([sections.tables(run), sections.images(run), sections.texts(run)]),
        "params": sections.params(run),
        "artifacts": sections.artifacts(run),
        "facts": sections.facts(run),
        "bookkeeping": Markup(bookkeeping),
    }


def _step_section(run: Contents, further: Mapping[StepName, Sequence[Span]]) -> Markup:
    """Return the place of the step view with the steps it can show, the one to begin with first; and the last steps."""
    views = step_views(run, further)
    data = json.dumps(views, separators=(",", ":"))
    view = tag("div", data_steps=data, class_="step") if views else Markup("")
    last = sections.workers(run)
    return joined([section("What every rank did in a step", view), last])


def step_views(run: Contents, further: Mapping[StepName, Sequence[Span]] = _NOTHING) -> list[dict[str, Any]]:
    """Return the views of as many steps as a page can hold: first those that findings name, then the newest ones."""
    known = {**by_step(run.spans), **further}
    named = [(one.role, one.axis, one.shows) for one in troubles(run)]
    order = [*named, *sorted(known, key=lambda name: (name[1] != DEFAULT_AXIS, -name[2], name[0] != "trainer"))]
    views, left = [], _BOXES
    for name in dict.fromkeys(order):
        if name in known and left > 0:
            left -= len(known[name])
            views.append(step_view(name, known[name]))
    return views


def _several(runs: Sequence[Contents]) -> Markup:
    compared, names = _compared(runs), _names(runs)
    each = (
        details(f"Run {name}", sections.facts(run), _rest(run, _others(run, compared)))
        for run, name in zip(runs, names, strict=True)
    )
    return joined([tag("h1", f"{len(runs)} runs"), _side_by_side(runs), _curves(compared), _bookkeeping(compared), *each])


def _names(runs: Sequence[Contents]) -> list[str]:
    """Return what to call each run: its id, with the experiment where two have the same."""
    ids = [run.id for run in runs]
    return [f"{run.experiment}/{run.id}" if ids.count(run.id) > 1 else run.id for run in runs]


def _side_by_side(runs: Sequence[Contents]) -> Markup:
    by, rows = yardstick(runs), scaling(runs)
    place = by.step.removesuffix("/time/step") if by.step != "time/step" else ""
    columns = (
        "run", "status", "ranks", "steps", f"s per step of {place}" if place else "s per step",
        by.rate.rpartition("/")[2].replace("_per_sec", " per s").replace("_", " "), "speed-up", "efficiency",
        "GPUs measured", "energy J", "energy of", "GPU utilisation", "CPU utilisation", "utilisation of",
        "compute share",
    )  # fmt: skip
    base = next((row.run for row in rows if row.speed_up is not None), None)
    work = f"{by.rate} tells how quick a run is" if by.rate else "every step counts as the same work in all runs"
    note = "" if base is None else tag("p", f"Speed-up is over {base}: {work}.", class_="quiet")
    return section("Side by side", cell_table(*_known(columns, [tuple(row) for row in rows])), note)


def _known(
    columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
    """Return the table without columns of which no run has anything."""
    kept = [place for place in range(len(columns)) if any(row[place] is not None for row in rows)]
    return [columns[place] for place in kept], [[row[place] for place in kept] for row in rows]


def _title(run: Contents) -> Markup:
    return joined([tag("p", run.experiment, class_="quiet"), tag("h1", run.id)])


def _rest(run: Contents, charts: Charts) -> Markup:
    return joined(
        [
            sections.findings(run),
            _curves(charts),
            sections.timing(run),
            sections.workers(run),
            sections.tables(run),
            sections.images(run),
            sections.texts(run),
            sections.params(run),
            sections.artifacts(run),
            _bookkeeping(charts),
        ]
    )


def charts_of(run: Contents) -> dict[SeriesName, list[Curve]]:
    """Return the charts of a run: a metric with its further reductions in one, what a user recorded first."""
    charts: dict[SeriesName, list[Curve]] = {}
    for key in _in_order(run.history.series):
        base, _, last = key.name.rpartition("/")
        series = run.history.series[key]
        row = row_of(last)
        if row is not None and row.scale == "values" and SeriesName(key.axis, base) in charts:
            charts[SeriesName(key.axis, base)].append(Curve(last, series))
        else:
            charts[key] = [Curve(key.name, series)]
    return charts


_RANK = re.compile(r"(?:.*/)?(arg(?:max|min)|time/exposed/.+/rank|otel_ml/straggler/rank)")


def is_rank(name: str) -> bool:
    """Whether a series says which rank, from step to step: a strip of colours, no curve.

    Examples:
        >>> [is_rank(name) for name in ("time/forward/argmax", "time/exposed/forward/rank", "argmax", "lora/rank")]
        [True, True, True, False]
    """
    return _RANK.fullmatch(name) is not None


def _in_order(keys: Iterable[SeriesName]) -> list[SeriesName]:
    """Return what a user recorded first, then timers, what is on the axis `time`, and families: one for each layer."""
    found = list(keys)
    families = Counter(_family(key) for key in found)

    def importance(key: SeriesName) -> tuple[bool, bool, bool, bool, str]:
        is_large = families[_family(key)] > _FAMILY
        return is_own(key.name), is_large, key.axis == TIME_AXIS, "time/" in key.name, key.name

    return sorted(found, key=importance)


def _family(key: SeriesName) -> str:
    return _NUMBER.sub("#", key.name)


def _compared(runs: Sequence[Contents]) -> Charts:
    """Return the charts of the series that several runs have: a curve a run."""
    charts: dict[SeriesName, list[Curve]] = {}
    for run, name in zip(runs, _names(runs), strict=True):
        for key, series in run.history.series.items():
            charts.setdefault(key, []).append(Curve(name, series))
    return {key: charts[key] for key in _in_order(charts) if len(charts[key]) > 1}


def _others(run: Contents, compared: Charts) -> Charts:
    """Return the charts of what only this run has."""
    return {key: curves for key, curves in charts_of(run).items() if key not in compared}


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


def _curves(charts: Charts) -> Markup:
    return curve_section(charts, drawn, _CHARTS)


def curve_section(charts: Charts, figure: Figure, most: int) -> Markup:
    """Return the curves of a user in groups, by what their names begin with; of more than `most`, the last values."""
    users = {key: curves for key, curves in charts.items() if not is_own(key.name)}
    shown, left_out = list(users.items())[:most], list(users.items())[most:]
    groups: dict[str, list[tuple[SeriesName, Sequence[Curve]]]] = {}
    for key, curves in shown:
        groups.setdefault(_group(key), []).append((key, curves))
    parts = [_opened(name, found, figure, is_alone=len(groups) == 1) for name, found in groups.items()]
    more = details(f"{len(left_out)} more", cell_table(("series", "last value"), map(_last, left_out)))
    return section("Curves", _LOOK, *parts, more) if parts or more else Markup("")


_LOOK = Markup(
    '<div class="tools look"><label><input type="checkbox" data-look="log"> logarithmic</label> '
    '<label>smooth <input type="range" data-look="smooth" min="0" max="0.98" step="0.02" value="0"></label> '
    '<label><input type="checkbox" data-look="whole"> with warm-up</label></div>'
)


def _group(key: SeriesName) -> str:
    prefix, slash, _ = key.name.partition("/")
    if key.axis == TIME_AXIS and not slash:
        return "over time"
    if key.axis not in {DEFAULT_AXIS, TIME_AXIS} and prefix != key.axis:
        prefix = f"{prefix}, {key.axis}" if slash else key.axis
        return prefix
    return prefix if slash else "metrics"


def _opened(
    name: str, charts: Sequence[tuple[SeriesName, Sequence[Curve]]], figure: Figure, *, is_alone: bool
) -> Markup:
    figures = tag("div", *(figure(key, curves) for key, curves in charts), class_="charts")
    if is_alone:
        return figures
    return tag("details", tag("summary", f"{name} ({len(charts)})"), figures, open="", class_="group")


def _bookkeeping(charts: Charts) -> Markup:
    return bookkeeping_section(charts, drawn)


def bookkeeping_section(charts: Charts, figure: Figure) -> Markup:
    """Return the curves of otel_ml about itself."""
    own = [(key, curves) for key, curves in charts.items() if is_own(key.name)][:_CHARTS]
    figures = tag("div", *(figure(key, curves) for key, curves in own), class_="charts") if own else Markup("")
    return details("What otel_ml says about itself", figures) if own else Markup("")


def _last(chart: tuple[SeriesName, Sequence[Curve]]) -> tuple[str, float]:
    key, curves = chart
    return key.name, list(curves[-1].series.values())[-1]
