"""One or several runs as one HTML page that needs no network, no script of others and no wide screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from otel_ml.wire.attributes import TIME_AXIS
from otel_ml.wire.reductions import row_of
from otel_ml_service.report import sections
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import Curve, chart
from otel_ml_service.report.markup import Markup, cell_table, details, joined, section, tag
from otel_ml_service.report.scalability import scaling, yardstick
from otel_ml_service.report.style import SCRIPT, STYLE
from otel_ml_service.stored_runs.run_history import SeriesName, is_own

__all__ = ["page"]

_NUMBER = re.compile(r"\d+")
_FAMILY = 8
"""Series that differ in numbers only; of more, none is worth more than a metric of the whole job."""

_CHARTS = 80
"""Charts of a page; the other series are listed with their last value."""


def page(runs: Sequence[Contents]) -> str:
    """Return the report of runs, the first one named in the title."""
    title = (runs[0].name or runs[0].id) if len(runs) == 1 else f"{len(runs)} runs of {runs[0].experiment}"
    body = _one(runs[0]) if len(runs) == 1 else _several(runs)
    head = joined(
        [
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            # Nothing is loaded and nothing but the script below runs, whatever a name or a text holds.
            Markup('<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '),
            Markup("style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"),
            Markup('<link rel="icon" href="data:,">'),
            tag("title", title),
            Markup(f"<style>{STYLE}</style>"),
        ]
    )
    footer = tag("footer", "Made by otel-ml report.")
    script = f"<script>{SCRIPT}</script>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}{footer}{script}</body></html>\n'


def _one(run: Contents) -> Markup:
    return joined([_title(run), sections.facts(run), _rest(run, _curves(_charts(run)))])


def _several(runs: Sequence[Contents]) -> Markup:
    compared, names = _compared(runs), _names(runs)
    each = (
        details(f"Run {name}", sections.facts(run), _rest(run, _curves(_others(run, compared))))
        for run, name in zip(runs, names, strict=True)
    )
    return joined([tag("h1", f"{len(runs)} runs"), _side_by_side(runs), _curves(compared), *each])


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
    place = run.experiment if run.name in {"", run.id} else f"{run.experiment}/{run.id}"
    notes = [tag("p", run.notes)] if run.notes else []
    return joined([tag("p", place, class_="quiet"), tag("h1", run.name or run.id), *notes])


def _rest(run: Contents, curves: str) -> Markup:
    return joined(
        [
            sections.findings(run),
            curves,
            sections.timing(run),
            sections.workers(run),
            sections.tables(run),
            sections.images(run),
            sections.texts(run),
            sections.params(run),
            sections.artifacts(run),
        ]
    )


Charts = Mapping[SeriesName, Sequence[Curve]]

_AT_THE_FRONT = re.compile(r"(?:.*/)?time/exposed/.+/rank")
"""Which rank, from step to step: no curve. The table of timers names the one that costs most."""


def _charts(run: Contents) -> Charts:
    """Return the charts of a run: a metric with its further reductions in one, what a user recorded first."""
    charts: dict[SeriesName, list[Curve]] = {}
    for key in _in_order(run.history.series):
        if _AT_THE_FRONT.fullmatch(key.name):
            continue
        base, _, last = key.name.rpartition("/")
        series = dict(sorted(run.history.series[key].items()))
        row = row_of(last)
        if row is not None and row.scale == "values" and SeriesName(key.axis, base) in charts:
            charts[SeriesName(key.axis, base)].append(Curve(last, series))
        else:
            charts[key] = [Curve(key.name, series)]
    return charts


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
            charts.setdefault(key, []).append(Curve(name, dict(sorted(series.items()))))
    return {key: charts[key] for key in _in_order(charts) if len(charts[key]) > 1}


def _others(run: Contents, compared: Charts) -> Charts:
    """Return the charts of what only this run has."""
    return {key: curves for key, curves in _charts(run).items() if key not in compared}


def _curves(charts: Charts) -> Markup:
    users = {key: curves for key, curves in charts.items() if not is_own(key.name)}
    own = {key: curves for key, curves in charts.items() if key not in users}
    shown, left_out = list(users.items())[:_CHARTS], list(users.items())[_CHARTS:]
    more = details(f"{len(left_out)} more", cell_table(("series", "last value"), map(_last, left_out)))
    itself = details("What otel_ml says about itself", _grid(list(own.items())[:_CHARTS])) if own else ""
    return section("Curves", _grid(shown), more, itself)


def _last(chart: tuple[SeriesName, Sequence[Curve]]) -> tuple[str, float]:
    key, curves = chart
    return key.name, list(curves[-1].series.values())[-1]


def _grid(charts: Sequence[tuple[SeriesName, Sequence[Curve]]]) -> Markup:
    if not charts:
        return Markup("")
    return tag("div", *(chart(key.name, key.axis, curves) for key, curves in charts), class_="charts")
