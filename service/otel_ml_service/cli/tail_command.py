"""`otel-ml tail RUN`: a line for every step that closes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

from otel_ml.wire.published_name import is_own
from otel_ml_exporters.records import Record, RunStatus, StepRecord, Summary, Text
from otel_ml_service.cli.figures import of_metric
from otel_ml_service.cli.parameters import METRIC, dir_option, run_argument
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.time_account import is_exposed
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
def command(run: str, metrics: Sequence[str], base: Path, lines: int, no_follow: bool) -> None:
    """Follow a run: a line for every step that closes, until the run ends. METRICs (globs too) choose the values."""
    output = screen()
    folder = find(run, base)
    follower = Follower(folder.jsonl)
    seen = follower.new_records() if is_there(folder.jsonl) else list(records(folder))
    shown = [line for record in seen if (line := _line(record, metrics)) is not None]
    for line in shown[max(len(shown) - lines, 0) :]:
        output.line(line)
    while not no_follow and is_live(folder):
        _print(output, follower.new_records(), metrics)
        time.sleep(_POLL_S)
    _print(output, follower.new_records(), metrics)


def _print(output: Screen, new: Sequence[Record], metrics: Sequence[str]) -> None:
    for record in new:
        line = _line(record, metrics)
        if line is not None:
            output.line(line)


def _line(record: Record, metrics: Sequence[str]) -> str | None:
    if isinstance(record, StepRecord):
        return _step_line(record, metrics)
    if isinstance(record, RunStatus):
        return f"status {record.status}"
    if isinstance(record, Summary) and not metrics:
        return f"summary  {_values(shown)}" if (shown := _of_the_program(record.values)) else None
    if isinstance(record, Text) and not metrics:
        return f"text {record.name}: {record.text.splitlines()[0] if record.text else ''}"
    return None


def _step_line(record: StepRecord, metrics: Sequence[str]) -> str | None:
    if metrics:
        chosen = {name: value for name, value in record.values.items() if _wanted(name, metrics)}
    else:
        chosen = _of_the_program(record.values)
    if not chosen:
        return None
    where = f"{record.axis} {record.step}" + (" (amended)" if record.amendment else "")
    missing = f"  [{record.writers_missing} writers missing]" if record.writers_missing else ""
    return f"{where:<16} {_values(chosen)}{missing}"


def _of_the_program(values: Mapping[str, float]) -> dict[str, float]:
    """Return what the program recorded, without otel_ml's own account."""
    return {name: value for name, value in values.items() if not (is_own(name) or is_exposed(name))}


def _wanted(name: str, metrics: Sequence[str]) -> bool:
    return any(name == metric or fnmatchcase(name, metric) for metric in metrics)


def _values(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {of_metric(name, value)}" for name, value in values.items())
