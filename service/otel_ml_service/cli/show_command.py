"""`otel-ml show RUN [METRIC…]`: all series in a table, or some as plots."""

from __future__ import annotations

import csv
import difflib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote

import click

from otel_ml.exceptions import ConfigError
from otel_ml.flatten import leaves
from otel_ml.printable import printable
from otel_ml.quantities import percent, seconds
from otel_ml.wire.published_name import is_own
from otel_ml_exporters.records import Record, StepRecord, Table
from otel_ml_service.cli.figures import compact
from otel_ml_service.cli.parameters import METRIC, dir_option, run_argument
from otel_ml_service.cli.plot import plot, spark
from otel_ml_service.cli.run_status import described
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.series_json import Json, json_value, metric_json
from otel_ml_service.cli.time_account import FINDINGS, Share, finding_lines, is_exposed, time_account
from otel_ml_service.delivery.self_telemetry_filter import SelfTelemetryFilter, is_position
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.whose_account import of_rank_text
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.deliveries import Delivery, deliveries, lacking
from otel_ml_service.stored_runs.failure import failure_lines
from otel_ml_service.stored_runs.losses import by_reason, loss_lines
from otel_ml_service.stored_runs.quick_history import history_of
from otel_ml_service.stored_runs.read_records import is_live
from otel_ml_service.stored_runs.run_folders import RunFolder, called, find
from otel_ml_service.stored_runs.run_history import History, Series, SeriesName
from otel_ml_service.stored_runs.shortened_name import is_part_of
from otel_ml_service.stored_runs.status_word import LIVE, UNTOLD, standing

__all__ = ["command"]

Chosen = list[tuple[SeriesName, Series]]

_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red")
_WIDEST = 120
"""Columns of the widest plot: a wider one is harder to read, not more exact."""


@click.command("show", epilog="Examples: otel-ml show latest · otel-ml show latest loss 'time/*' --log")
@run_argument(required=False)
@click.argument("metrics", metavar="[METRIC]...", type=METRIC, nargs=-1)
@dir_option
@click.option("--log", is_flag=True, help="Logarithmic y axis; values that are not positive are gaps.")
@click.option("--height", type=click.IntRange(2, 60), default=10, show_default=True, help="Lines of a plot.")
@click.option("--all", "everything", is_flag=True, help="Also what otel_ml counts of itself where nothing is wrong.")
@click.option("--csv", "as_csv", is_flag=True, help="Print axis, name, step, value as CSV, for programs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs; of METRICs with their values.")
def command(
    run: str, metrics: Sequence[str], base: Path, log: bool, height: int, everything: bool, as_csv: bool, as_json: bool
) -> None:
    """Show what a run recorded: everything in a table, or METRICs (globs too) as plots."""
    output = screen()
    folder = find(run, base)
    # Filled while the history is read: that keeps no tables.
    tables: dict[str, Table] = {}
    read = history_of(folder, metrics, partial(_note_findings, tables))
    chosen = _chosen(read, metrics, folder, parts=not (as_csv or as_json)) if metrics else list(read.matching("*"))
    if as_json:
        click.echo(json.dumps(_show_json(folder, read, chosen, with_values=bool(metrics)), default=str))
    elif metrics or as_csv:
        _print_chosen(output, chosen, as_csv=as_csv, height=height, log=log)
    else:
        _print_overview(output, folder, read, chosen, everything=everything)
        _print_time(output, folder.id, time_account(read), tables.values())


def _print_chosen(output: Screen, chosen: Chosen, *, as_csv: bool, height: int, log: bool) -> None:
    if as_csv:
        _print_csv(chosen)
    else:
        _print_plots(output, chosen, height=height, log=log)


def _note_findings(tables: dict[str, Table], record: Record) -> None:
    """Keep the last table of findings of each role and axis."""
    # The tables of other roles and axes are called `generator/otel_ml/findings`.
    if isinstance(record, Table) and f"/{record.name}".endswith(f"/{FINDINGS}"):
        tables[record.name] = record


def _print_time(output: Screen, run: str, account: Sequence[Share], tables: Iterable[Table]) -> None:
    if account:
        output.line()
        of_one = {one.place: of_rank_text(one.of_rank, run, one.last) for one in account if one.of_rank is not None}
        of_all = "" if of_one else ": what each phase adds to the step of the slowest rank"
        output.line(f"where the time goes{of_all}", style="bold")
        for place, whose in of_one.items():
            output.line(": ".join(filter(None, [place.removesuffix("/"), whose])), style="dim")
        rows = [
            [one.place + one.phase, seconds(one.seconds), percent(one.share), "" if one.rank is None else str(one.rank)]
            for one in account
        ]
        columns = ["phase", "a step", "share", "rank in front"]
        output.table(columns, rows, right=columns[1:])
    lines = [line for table in tables for line in finding_lines(table)]
    if lines:
        output.line()
        output.line("found", style="bold")
        for line in lines:
            # Lines that belong to a finding are indented below it, and stay so where they go on.
            begin = line[: len(line) - len(line.lstrip())]
            output.hanging(begin, line.lstrip())


def _chosen(read: History, patterns: Sequence[str], folder: RunFolder, *, parts: bool) -> Chosen:
    """Return the series that are meant; with `parts` also by a part of a name, which no program should rely on."""
    chosen: dict[SeriesName, Series] = {}
    for pattern in patterns:
        # A program gets what it names: a part of a name may fit more tomorrow.
        found = dict(read.matching(pattern)) or (_with_part(read, pattern) if parts else {})
        if not found:
            names = sorted({key.name for key in read.series})
            near = difflib.get_close_matches(pattern, names, n=3)
            hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
            raise ConfigError(
                f"Run {called(folder)} has no metric {pattern!r}.{hint} It has {len(names)}: otel-ml show {folder.id}",
                slug="unknown-metric",
            )
        chosen |= found
    return list(chosen.items())


def _with_part(read: History, written: str) -> dict[SeriesName, Series]:
    """Return the series of which a person copied a part of the name, without otel_ml's own."""
    names = {key.name for key in read.series if is_part_of(written, key.name) and not _is_account(key.name)}
    return {key: series for name in sorted(names) for key, series in read.matching(name)}


def _print_csv(chosen: Chosen) -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(["axis", "name", "step", "value"])
    for key, series in chosen:
        # `repr` is the shortest text that reads back as the same number.
        rows.writerows([printable(key.axis), key.name, step, repr(value)] for step, value in series.items())


def _print_plots(output: Screen, chosen: Chosen, *, height: int, log: bool) -> None:
    width = min(output.out.width, _WIDEST)
    for index, (key, series) in enumerate(chosen):
        values = list(series.values())
        color = _COLORS[index % len(_COLORS)]
        output.line(f"{key.name}   {_figures(key.name, values)}   over {key.axis}", style=f"bold {color}")
        for line in plot(list(series), values, width=width, height=height, log=log):
            output.line(line, style=color)
        output.line()


def _figures(name: str, values: Sequence[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    bounds = (
        f"  min {measured(name, min(finite), compact)}  max {measured(name, max(finite), compact)}" if finite else ""
    )
    return f"last {measured(name, values[-1], compact)}{bounds}  {plural(len(values), 'step')}"


def _print_overview(output: Screen, folder: RunFolder, read: History, chosen: Chosen, *, everything: bool) -> None:
    known = deliveries(folder)
    status = standing(folder, read.status, is_told=known is not None)
    output.line(f"{folder.experiment}/{folder.name}  {status}", style="bold")
    if folder.notes:
        output.line(folder.notes)
    output.line(f"{folder.path}", style="dim")
    for line in failure_lines(read.failures):
        output.line(line, style="red")
    if known is None and status != LIVE:
        output.line(UNTOLD, style="yellow")
    found = known or ()
    _print_deliveries(output, found)
    if (names := lacking(found)) and not is_live(folder):
        output.line(f"not all of it is in {', '.join(names)}: otel-ml recover {folder.id}", style="yellow")
    for line in loss_lines(read):
        output.line(line, style="yellow")
    output.line()
    params = {name: value for name, value in leaves(read.params) if value != {}}
    for title, values in (("params", params), ("summary", read.summary)):
        # Those of the user: otel_ml's own are told by the lines above.
        ours = {name: value for name, value in values.items() if not name.startswith(("otel_ml/", "otel_ml."))}
        if ours:
            output.line(f"{title}  " + "  ".join(f"{name}={_shown(value)}" for name, value in ours.items()))
    counts = [plural(read.others[kind], noun) for kind, noun in _NOUNS.items() if kind in read.others]
    output.line(", ".join([plural(read.steps, "step"), *counts, plural(read.amendments, "amended value")]), style="dim")
    output.line()
    own = [entry for entry in chosen if _is_account(entry[0].name)]
    users = [entry for entry in chosen if not _is_account(entry[0].name)]
    wrong = _not_as_it_should_be(read)
    told = [entry for entry in own if everything or entry[0].name in wrong]
    # What a user recorded first, what otel_ml says about itself last, and only where it is not as it should be.
    _print_series(output, [*users, *told])
    if hidden := len(own) - len(told):
        output.line(f"{hidden} more of otel_ml's own account: otel-ml show {quote(folder.name)} --all", style="dim")


def _print_deliveries(output: Screen, found: Sequence[Delivery]) -> None:
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        is_whole = not one.behind and not one.lost
        output.hanging(f"{one.name:<{width}}  ", _delivery(one), style="dim" if is_whole else "yellow")


def _delivery(one: Delivery) -> str:
    """Return how far a backend is, in words."""
    there = "delivered"
    if one.behind:
        rest = "on their way" if one.goes_on else "not delivered"
        why = f" ({one.problem})" if one.problem else ""
        there = f"{one.seq:,} of {plural(one.last_seq, 'record')} delivered, {one.behind:,} {rest}{why}"
    if not one.lost:
        return there
    return f"{there}, but for {plural(sum(one.lost.values()), 'value')}: {by_reason(one.lost)}"


def _print_series(output: Screen, chosen: Chosen) -> None:
    columns = ["metric", "axis", "steps", "last", "min", "max"]
    rows = [_row(*entry) for entry in chosen]
    # What the other columns leave, in bounds: the curve is made for a width, and cannot be cut later.
    width = max(min(output.width_beside(columns, rows), _CURVE), _SHORTEST_CURVE)
    curves = [spark(list(series.values()), width) for _, series in chosen]
    output.table(
        [*columns, ""],
        [[*row, curve] for row, curve in zip(rows, curves, strict=True)],
        right=columns[2:],
        shortened=["metric"],
        optional=["min", "max"],
    )


_CURVE, _SHORTEST_CURVE = 24, 8
"""Characters of a curve in the table: a shorter one says nothing, so a long name goes on in a further line first."""

_NOUNS = {
    "Artifact": "artifact",
    "Audio": "audio clip",
    "HistogramValue": "histogram",
    "Image": "image",
    "Table": "table",
    "Text": "text",
}
"""Records that are counted in a line of their own; the others are shown as they are, or are steps."""

_LONGEST = 80
"""Characters of a parameter: a prompt or a list of files would hide the others."""


def _shown(value: object) -> str:
    text = compact(value) if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text):,} characters)"


def _is_account(name: str) -> bool:
    """Whether a metric is otel_ml's own: of itself, or of a step's time, which has a table of its own."""
    return is_own(name) or is_exposed(name)


def _row(key: SeriesName, series: Series) -> list[str]:
    values = list(series.values())
    finite = [value for value in values if math.isfinite(value)]
    bounds = (
        [measured(key.name, min(finite), compact), measured(key.name, max(finite), compact)] if finite else ["", ""]
    )
    return [key.name, key.axis, f"{len(values):,}", measured(key.name, values[-1], compact), *bounds]


def _show_json(
    folder: RunFolder, read: History, chosen: Iterable[tuple[SeriesName, Series]], *, with_values: bool
) -> dict[str, Json]:
    """Return how a run stands, what describes it, and its metrics, with `with_values` their values, too."""
    told = {"params": json_value(read.params), "summary": json_value(read.summary), "notes": folder.notes}
    metrics = [metric_json(key.axis, key.name, series) | _points(series, with_values) for key, series in chosen]
    return {**described(folder), **told, "metrics": metrics}


def _points(series: Mapping[int, float], with_values: bool) -> dict[str, Json]:
    points = [[step, json_value(value)] for step, value in series.items()]
    return {"points": points} if with_values else {}


def _not_as_it_should_be(read: History) -> set[str]:
    """Return the names of otel_ml's own series that tell of a loss, a lag, a slow rank, ….

    Examples:
        >>> row = {"loss": 1.0, "otel_ml/lost/exporter/wandb": 3.0, "otel_ml/lost/exporter/jsonl": 0.0}
        >>> read = History()
        >>> read.add(StepRecord(1, "", "time", 10, 0, 1.0, row))
        >>> _not_as_it_should_be(read)
        {'otel_ml/lost/exporter/wandb'}
    """
    rows: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for key, series in read.series.items():
        if is_own(key.name):
            for step, value in series.items():
                rows[key.axis, step][key.name] = value
    # Put together to rows again, as the filter of what backends get looks at these (docs/protocol.md §6.6).
    records = [StepRecord(0, "", axis, step, 0, 0.0, values) for (axis, step), values in sorted(rows.items())]
    found = SelfTelemetryFilter()
    found.note(records)
    selected = (found.select(record) for record in records)
    names = {name for record in selected if isinstance(record, StepRecord) for name in record.values}
    return {name for name in names if not is_position(name)}
