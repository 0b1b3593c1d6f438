"""One or several runs as one HTML page that needs no network, no script of others and no wide screen."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from otel_ml.quantities import figure, percent, quantity, seconds
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import JsonValue, Span, Table
from otel_ml_service.findings.causal_order import in_causal_order
from otel_ml_service.report import sections
from otel_ml_service.report.answer import FINDINGS, Trouble, answer, trouble_of, troubles
from otel_ml_service.report.axes import times
from otel_ml_service.report.by_version import by_version_and_task
from otel_ml_service.report.chart_groups import (
    Charts,
    bookkeeping_section,
    charts_of,
    curve_section,
    drawn,
    in_order,
)
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import Curve
from otel_ml_service.report.markup import Amount, Markup, cell_table, details, joined, script_data, section, tag
from otel_ml_service.report.scalability import Scaling, run_names, scaling, yardstick
from otel_ml_service.report.step_view import StepName, by_step, step_view
from otel_ml_service.report.steps_told import Told, steps_told
from otel_ml_service.report.style import STYLE, page_script
from otel_ml_service.stored_runs.run_history import SeriesName

__all__ = ["compared_parts", "document", "page", "page_of_parts", "parts"]

_NOTHING: Mapping[StepName, Sequence[Span]] = MappingProxyType({})
# The style sheet is in the page, and some elements have a style of their own; a live page asks its own server.
_POLICY = "default-src 'none'; img-src data:; connect-src 'self'; style-src 'unsafe-inline'"
_BOXES = 6_000
"""Spans of all step views of a page. The step that passes it is still whole."""

_CHARTS = 80
"""Charts of a page; the other series are listed with their last value."""


def page(runs: Sequence[Contents], steps: Mapping[StepName, Sequence[Span]] = _NOTHING) -> str:
    """Return the report of runs, the first one named in the title.

    Args:
        runs: one, or several that are put side by side.
        steps: further steps of a single run whose spans the page has: those that findings name.
    """
    title = (runs[0].name or runs[0].id) if len(runs) == 1 else f"{len(runs)} runs of {runs[0].experiment}"
    body = _one(runs[0], steps) if len(runs) == 1 else _several(runs)
    return document(title, joined([body, tag("footer", "Made by otel-ml report.")]))


def document(title: str, body: str, script: str | None = None) -> str:
    """Return a page that loads nothing from elsewhere, and runs nothing but its own script."""
    program = page_script() if script is None else script
    policy = f"{_POLICY}; script-src '{_sha256(program)}'"
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
    shown = f"{joined([body])}<script>{program}</script>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{shown}</body></html>\n'


def _sha256(program: str) -> str:
    return "sha256-" + b64encode(hashlib.sha256(program.encode()).digest()).decode("ascii")


def _one(run: Contents, steps: Mapping[StepName, Sequence[Span]]) -> Markup:
    shown = charts_of(run)
    # Before the parts are made: a table of findings is one of them.
    run = _with_exact_spans(run, {**by_step(run.spans), **steps})
    return joined(parts(run, _curves(shown), _bookkeeping(shown), _step_section(run, steps), steps_told(run)).values())


def parts(
    run: Contents, curves: str, bookkeeping: str, steps: str, told: Told, *, is_live: bool = False
) -> dict[str, Markup]:
    """Return what a page of a run is made of, by name, in its order: the answer first, which `told` is a part of."""
    return {
        "title": _title(run),
        "answer": answer(run, told, is_live=is_live),
        "times": times(run),
        "ranks": sections.findings(run),
        "steps": Markup(steps),
        "curves": Markup(curves),
        "versions": by_version_and_task(run),
        "timing": sections.timing(run),
        "samples": joined([sections.tables(run), sections.images(run), sections.texts(run)]),
        "params": sections.params(run),
        "artifacts": sections.artifacts(run),
        "facts": sections.facts(run),
        "bookkeeping": Markup(bookkeeping),
    }


def page_of_parts(
    title: str, shown: Mapping[str, tuple[str, str]], version: int | str, *, all_runs: str = "../../../"
) -> str:
    """Return a page that asks for what is new: each part with a digest of what it is, by name."""
    found = (tag("div", Markup(html), data_part=name, data_hash=digest) for name, (digest, html) in shown.items())
    back = Markup(f'<p><a href="{all_runs}">all runs</a></p>')
    body = tag("main", back, *found, data_live_run=title, data_version=version)
    return document(title, body, page_script("live.js"))


def _step_section(run: Contents, further: Mapping[StepName, Sequence[Span]]) -> Markup:
    """Return the place of the step view with the steps it can show, the one to begin with first; and the last steps."""
    views = _step_views(run, further)
    view = tag("div", data_steps=script_data(views), class_="step") if views else Markup("")
    last = sections.workers(run)
    return joined([section("What every rank did in a step", view), last])


def _step_views(run: Contents, further: Mapping[StepName, Sequence[Span]] = _NOTHING) -> list[dict[str, Any]]:
    """Return the views of as many steps as a page can hold: first those that findings name, then the newest ones."""
    known = {**by_step(in_causal_order(run.spans)), **further}
    named = [(one.role, one.axis, one.shows) for one in troubles(run)]
    order = [*named, *sorted(known, key=lambda name: (name[1] != DEFAULT_AXIS, -name[2], name[0] != "trainer"))]
    views, left = [], _BOXES
    for name in dict.fromkeys(order):
        if name in known and left > 0:
            left -= len(known[name])
            views.append(step_view(name, known[name]))
    return views


def _several(runs: Sequence[Contents]) -> Markup:
    return joined(compared_parts(runs).values())


def compared_parts(runs: Sequence[Contents]) -> dict[str, Markup]:
    """Return what a page of several runs is made of, by name, in its order: those side by side first."""
    compared, names = _compared(runs), run_names(runs)
    each = {
        f"run-{number}": details(f"Run {name}", sections.facts(run), _rest(run, _others(run, compared)))
        for number, (run, name) in enumerate(zip(runs, names, strict=True))
    }
    return {
        "title": tag("h1", f"{len(runs)} runs"),
        "side": _side_by_side(runs),
        "curves": _curves(compared),
        "bookkeeping": _bookkeeping(compared),
        **each,
    }


def _side_by_side(runs: Sequence[Contents]) -> Markup:
    by, rows = yardstick(runs), scaling(runs)
    # `generator/time/step` → `generator`; nothing is added to the trainer's own steps.
    place = by.step.removesuffix("/time/step") if by.step != "time/step" else ""
    columns = (
        "run", "status", "ranks", "steps", f"a step of {place}" if place else "a step",
        by.rate.rpartition("/")[2].replace("_per_sec", " per s").replace("_", " "), "speed-up", "efficiency",
        "GPUs measured", "energy", "energy of", "GPU utilization", "CPU utilization", "utilization of",
        "compute share",
    )  # fmt: skip
    # Rows are in the order of ranks: the first that has a speed is what the others are compared with.
    base = next((row.run for row in rows if row.speed_up is not None), None)
    work = f"{by.rate} tells how quick a run is" if by.rate else "every step counts as the same work in all runs"
    note = "" if base is None else tag("p", f"Speed-up is over {base}: {work}.", class_="quiet")
    return section("Side by side", cell_table(*_known(columns, [_cells(row) for row in rows])), note)


_AMOUNTS: Mapping[str, Callable[[float], str]] = {
    "step_s": seconds, "throughput": figure, "speed_up": lambda value: f"{figure(value)} ×", "efficiency": percent,
    "energy_j": lambda value: quantity(value, "J"), "utilization": percent, "cpu_utilization": percent,
    "compute": percent,
}  # fmt: skip


def _cells(row: Scaling) -> list[object]:
    """Return what is known of a run, in units."""
    return [
        Amount(_AMOUNTS[name](value)) if name in _AMOUNTS and value is not None else value
        for name, value in row._asdict().items()
    ]


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


def _compared(runs: Sequence[Contents]) -> Charts:
    """Return the charts of the series that several runs have: a curve a run."""
    charts: dict[SeriesName, list[Curve]] = {}
    for run, name in zip(runs, run_names(runs), strict=True):
        for key, series in run.history.series.items():
            charts.setdefault(key, []).append(Curve(name, series))
    return {key: charts[key] for key in in_order(charts) if len(charts[key]) > 1}


def _others(run: Contents, compared: Charts) -> Charts:
    """Return the charts of what only this run has."""
    return {key: curves for key, curves in charts_of(run).items() if key not in compared}


def _curves(charts: Charts) -> Markup:
    return curve_section(charts, drawn, _CHARTS)


def _bookkeeping(charts: Charts) -> Markup:
    return bookkeeping_section(charts, drawn)


_Spans = Mapping[StepName, Sequence[Span]]


def _with_exact_spans(run: Contents, known: _Spans) -> Contents:
    """Return the run with tables of findings that name a span of the finding's own steps, where one is known."""
    exact = {
        name: replace(table, rows=tuple(_exact(run, name, table, tuple(row), known) for row in table.rows))
        for name, table in run.tables.items()
        if name == FINDINGS or name.endswith(f"/{FINDINGS}")
    }
    return replace(run, tables={**run.tables, **exact})


def _exact(run: Contents, name: str, table: Table, row: tuple[JsonValue, ...], known: _Spans) -> tuple[JsonValue, ...]:
    cells = dict(zip(table.columns, row, strict=False))
    found = trouble_of(run, name.removesuffix(FINDINGS), table, cells)
    if found is None or found.kind != "slow" or _is_exact(found, cells.get("at step")):
        return row
    spans = known.get((found.role, found.axis, found.shows), ())
    shows = (span for span in spans if (span.rank, span.name) == (found.rank, found.phase))
    best = max(shows, key=lambda span: span.end_ns - span.start_ns, default=None)
    if best is None:
        return row
    named = {"span of": best.name, "at step": best.step, "span": best.span_id, "trace": best.trace_id}
    # Four columns are those of the span that is known here; the others stay as the service wrote them.
    return tuple(named.get(column, cell) for column, cell in cells.items())


def _is_exact(found: Trouble, step: JsonValue) -> bool:
    return isinstance(step, int) and step >= found.since and (found.until is None or step <= found.until)
