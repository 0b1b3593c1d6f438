"""One or several runs as one HTML page that needs no network, no script of others and no wide screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_ml.wire.reduction import ACROSS
from otel_ml_exporters.report import parts
from otel_ml_exporters.report.contents import Contents
from otel_ml_exporters.report.curves import Curve, chart
from otel_ml_exporters.report.markup import Markup, cell_table, details, joined, section, tag
from otel_ml_exporters.report.scalability import scaling, yardstick
from otel_ml_exporters.report.style import SCRIPT, STYLE
from otel_ml_exporters.runs.history import SeriesName

__all__ = ["page"]

_CHARTS = 80
"""Charts of a page; the names of the other series are listed."""


def page(runs: Sequence[Contents]) -> str:
    """Return the report of runs, the first one named in the title."""
    title = runs[0].id if len(runs) == 1 else f"{len(runs)} runs of {runs[0].experiment}"
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
    return joined([_title(run), parts.facts(run), _rest(run, _curves(_charts(run)))])


def _several(runs: Sequence[Contents]) -> Markup:
    each = (details(f"Run {run.id}", parts.facts(run), _rest(run, "")) for run in runs)
    return joined([tag("h1", f"{len(runs)} runs"), _side_by_side(runs), _curves(_compared(runs)), *each])


def _side_by_side(runs: Sequence[Contents]) -> Markup:
    by, rows = yardstick(runs), scaling(runs)
    place = by.step.removesuffix("/time/step") if by.step != "time/step" else ""
    columns = (
        "run", "status", "ranks", "steps", f"s per step of {place}" if place else "s per step",
        by.rate.rpartition("/")[2].replace("_per_sec", " per s").replace("_", " "), "speed-up", "efficiency",
        "energy J", "energy of", "GPU utilisation", "CPU utilisation", "utilisation of", "compute share",
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


def _rest(run: Contents, curves: str) -> Markup:
    return joined(
        [
            parts.findings(run),
            curves,
            parts.timing(run),
            parts.workers(run),
            parts.tables(run),
            parts.images(run),
            parts.texts(run),
            parts.params(run),
            parts.artifacts(run),
        ]
    )


Charts = Mapping[SeriesName, Sequence[Curve]]


def _charts(run: Contents) -> Charts:
    """Return the charts of a run: a metric with its further reductions in one, what a user recorded first."""
    charts: dict[SeriesName, list[Curve]] = {}
    for key in sorted(run.history.series, key=_importance):
        base, _, last = key.name.rpartition("/")
        series = dict(sorted(run.history.series[key].items()))
        if last in _WITH_THE_OTHERS and SeriesName(key.axis, base) in charts:
            charts[SeriesName(key.axis, base)].append(Curve(last, series))
        else:
            charts[key] = [Curve(key.name, series)]
    return charts


_WITH_THE_OTHERS = frozenset(ACROSS) - {"argmax", "argmin", "count", "std", "sum"}
"""Reductions on the scale of the value itself."""


def _importance(key: SeriesName) -> tuple[bool, bool, str]:
    return "otel_ml/" in key.name, "time/" in key.name, key.name


def _compared(runs: Sequence[Contents]) -> Charts:
    """Return the charts of the series that several runs have: a curve a run."""
    charts: dict[SeriesName, list[Curve]] = {}
    for run in runs:
        for key, series in run.history.series.items():
            charts.setdefault(key, []).append(Curve(run.id, dict(sorted(series.items()))))
    return {key: charts[key] for key in sorted(charts, key=_importance) if len(charts[key]) > 1}


def _curves(charts: Charts) -> Markup:
    users = {key: curves for key, curves in charts.items() if "otel_ml/" not in key.name}
    own = {key: curves for key, curves in charts.items() if key not in users}
    shown, left_out = list(users.items())[:_CHARTS], list(users)[_CHARTS:]
    more = details(f"{len(left_out)} more", *(tag("p", key.name) for key in left_out)) if left_out else ""
    itself = details("What otel_ml says about itself", _grid(list(own.items())[:_CHARTS])) if own else ""
    return section("Curves", _grid(shown), more, itself)


def _grid(charts: Sequence[tuple[SeriesName, Sequence[Curve]]]) -> Markup:
    if not charts:
        return Markup("")
    return tag("div", *(chart(key.name, key.axis, curves) for key, curves in charts), class_="charts")
