"""`otel-ml tail RUN`: a line for every step that closes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from otel_ml.wire.published_name import is_own
from otel_ml_exporters.records import Record, RunStatus, StepRecord, Summary, Text
from otel_ml_service.cli.figures import compact
from otel_ml_service.cli.parameters import METRIC, dir_option, run_argument
from otel_ml_service.cli.screen import screen
from otel_ml_service.cli.series_json import json_value
from otel_ml_service.cli.time_account import is_exposed
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.follow_jsonl import Follower
from otel_ml_service.stored_runs.read_records import is_live, records
from otel_ml_service.stored_runs.run_folders import find, is_there

__all__ = ["command"]

_POLL_S = 0.2


@click.command("tail", epilog="Example: otel-ml tail latest loss 'eval/*' --lines 20")
@run_argument(required=False)
@click.argument("metrics", metavar="[METRIC]...", type=METRIC, nargs=-1)
@dir_option
@click.option("--lines", "-n", type=click.IntRange(0), default=10, show_default=True, help="Rows from before.")
@click.option("--no-follow", is_flag=True, help="Print and end, also while the run goes on.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs: steps and the status.")
def command(run: str, metrics: Sequence[str], base: Path, lines: int, no_follow: bool, as_json: bool) -> None:
    """Follow a run: a line for every step that closes, until the run ends. METRICs (globs too) choose the values."""
    print_line, line_of = (click.echo, _json_line) if as_json else (screen().line, _line)
    folder = find(run, base)
    follower = Follower(folder.jsonl)

    def new_lines(found: Iterable[Record]) -> list[str]:
        return [line for record in found if (line := line_of(record, metrics)) is not None]

    def print_last(found: Iterable[Record]) -> None:
        seen = new_lines(found)
        # With 0 lines a plain `[-0:]` would be all.
        for line in seen[max(len(seen) - lines, 0) :]:
            print_line(line)

    # A run without the exporter `jsonl` has its records in `run.db`, which can be read once it is over.
    print_last(follower.new_records() if is_there(folder.jsonl) else records(folder))
    goes_on = True
    while goes_on:
        # Before the look: what the service writes last, before it lets the run go, is seen then.
        goes_on = not no_follow and is_live(folder)
        # What is there now is shown as at the start: of a file that was replaced or cut, nobody knows what of it was
        # seen.
        if follower.is_of_another_file:
            follower = Follower(folder.jsonl)
            print_last(follower.new_records())
        for line in new_lines(follower.new_records()):
            print_line(line)
        if goes_on:
            time.sleep(_POLL_S)


def _json_line(record: Record, metrics: Sequence[str]) -> str | None:
    if isinstance(record, RunStatus):
        return json.dumps({"status": record.status})
    if not isinstance(record, StepRecord) or not (chosen := _chosen(record, metrics)):
        return None
    place = {"axis": record.axis, "step": record.step, "amendment": record.amendment}
    return json.dumps({**place, "writers_missing": record.writers_missing, "values": json_value(chosen)})


def _line(record: Record, metrics: Sequence[str]) -> str | None:
    if isinstance(record, StepRecord):
        return _step_line(record, metrics)
    if isinstance(record, RunStatus):
        return f"status {record.status}"
    # Whoever chooses metrics wants steps of these, and of the other records the status alone.
    if isinstance(record, Summary) and not metrics:
        return f"summary  {_values(shown)}" if (shown := _of_the_program(record.values)) else None
    if isinstance(record, Text) and not metrics:
        return f"text {record.name}: {_beginning(record.text)}"
    return None


_LONGEST = 200
"""Characters of a text: a prompt of megabytes would hide the steps."""


def _beginning(text: str) -> str:
    first = text[: _LONGEST + 1].splitlines()[0] if text else ""
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}… ({len(text):,} characters)"


def _step_line(record: StepRecord, metrics: Sequence[str]) -> str | None:
    chosen = _chosen(record, metrics)
    if not chosen:
        return None
    where = f"{record.axis} {record.step}" + (" (amended)" if record.amendment else "")
    missing = f"  [{plural(record.writers_missing, 'writer')} missing]" if record.writers_missing else ""
    return f"{where:<16} {_values(chosen)}{missing}"


def _chosen(record: StepRecord, metrics: Sequence[str]) -> dict[str, float]:
    if not metrics:
        return _of_the_program(record.values)
    return {name: value for name, value in record.values.items() if _wanted(name, metrics)}


def _of_the_program(values: Mapping[str, float]) -> dict[str, float]:
    """Return what the program recorded, without otel_ml's own account."""
    return {name: value for name, value in values.items() if not (is_own(name) or is_exposed(name))}


def _wanted(name: str, metrics: Sequence[str]) -> bool:
    return any(name == metric or fnmatchcase(name, metric) for metric in metrics)


def _values(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {measured(name, value, compact)}" for name, value in values.items())
