"""`otel-ml top RUN`: how a run is doing, live in the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from otel_ml.printable import printable
from otel_ml.quantities import percent, quantity, seconds
from otel_ml_exporters.records import Record
from otel_ml_exporters.telling_metrics import significant
from otel_ml_service.cli.parameters import dir_option, run_argument
from otel_ml_service.cli.plot import spark
from otel_ml_service.cli.run_board import Progress, RunBoard
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.series_json import json_value
from otel_ml_service.findings.units import unit_of
from otel_ml_service.report.hardware import HostUse
from otel_ml_service.stored_runs.follow_jsonl import Follower
from otel_ml_service.stored_runs.read_records import is_live, records
from otel_ml_service.stored_runs.run_folders import RunFolder, find, is_there
from otel_ml_service.stored_runs.shortened_name import shortened
from otel_ml_service.stored_runs.status_word import standing

__all__ = ["command"]

_EVERY_S = 1.0
"""How often it looks: over SSH too each look is a screen of text."""

_FRAME = 6
"""Lines of the screen that are neither metrics nor the sentence below them."""

_IN_A_LINE = 5
"""Metrics of a line, where no terminal shows a table."""

_DIGITS = 4
_TREND, _BAR = 24, 20

_BESIDE_NAME = _TREND + 16
"""Columns that a name leaves to its value and curve: where nothing fits, rich would cut all of them alike."""


@click.command("top", epilog="Example: otel-ml top latest")
@run_argument(required=False)
@dir_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs: the state at each update.")
def command(run: str, base: Path, as_json: bool) -> None:
    """Show how a run is doing until it ends: progress and time left, last values, phases, hosts, slow ranks.

    In a terminal the screen is updated once a second; in a pipe a line is written at most once a second.
    """
    output = screen()
    folder = find(run, base)
    boards = _boards(folder)
    if as_json:
        for board in boards:
            click.echo(json.dumps(json_value(_described(folder, board))))
    elif output.is_terminal:
        _live(output, folder, boards)
    else:
        _lines(output, folder, boards)


def _boards(run: RunFolder) -> Iterator[RunBoard]:
    """Yield the state of a run, again each time when there is something new, until the run ends."""
    board, follower = RunBoard(), Follower(run.jsonl)
    if not is_there(run.jsonl):
        yield _filled(board, list(records(run)))
        return
    # `board.status` alone would go on for ever with a run whose service was killed, and which never says how it ended.
    is_over = not is_live(run)  # before each look: what was written until then is seen
    yield _filled(board, follower.new_records())
    while not is_over and board.status == "running":
        time.sleep(_EVERY_S)
        is_over = not is_live(run)
        if follower.is_of_another_file:
            board, follower = RunBoard(), Follower(run.jsonl)
        if new := follower.new_records():
            yield _filled(board, new)


def _filled(board: RunBoard, new: Sequence[Record]) -> RunBoard:
    for record in new:
        board.add(record)
    return board


def _described(run: RunFolder, board: RunBoard) -> dict[str, object]:
    progress = board.progress
    # None as long as no step has closed.
    newest = progress and progress.newest
    return {
        "id": run.id,
        "name": run.name,
        "experiment": run.experiment,
        "status": standing(run, board.status),
        "role": newest and newest.role,
        "axis": newest and newest.axis,
        "step": newest and newest.step,
        "fraction": progress and progress.fraction,
        "seconds_left": progress and progress.seconds_left,
        "values": {name: values[-1] for name, values in board.recent.items()},
        "phases": board.phases,
        "hosts": {host: use._asdict() for host, use in board.hosts.items()},
        "finding": board.finding or None,
        "remark": board.remark or None,
    }


def _lines(output: Screen, run: RunFolder, boards: Iterator[RunBoard]) -> None:
    for board in boards:
        cells = [f"{name} {_last(name, values[-1])}" for name, values in board.metrics(_IN_A_LINE).items()]
        parts = [
            f"{run.name} {standing(run, board.status)}",
            *_progress(board.progress),
            *cells,
            board.finding or board.remark,
        ]
        output.line("  ".join(filter(None, parts)))
        # A pipe is read while the run goes on, and Python keeps what is written to one.
        output.out.file.flush()


def _live(output: Screen, run: RunFolder, boards: Iterator[RunBoard]) -> None:
    # rich's own thread would draw the same screen four times a second, over SSH too.
    with Live(console=output.out, auto_refresh=False) as live:
        for board in boards:
            live.update(_page(run, board, output.out), refresh=True)


def _page(run: RunFolder, board: RunBoard, out: Console) -> Group:
    # The screen wraps nothing by itself, so that addresses and commands stay whole.
    sentence = Text(printable(board.finding or board.remark), style="yellow").wrap(out, out.width)
    # The table gets the lines that the others leave, and one at least.
    most = out.height - _FRAME - len(sentence)
    title = Text(printable(f"{run.experiment}/{run.name}  {standing(run, board.status)}"), style="bold")
    parts = [title, _line("  ".join([*_bar(board.progress), *_progress(board.progress)]))]
    phases = [f"{name} {percent(share)}" for name, share in board.phases.items()]
    whose = "" if board.phases_of is None else f" of rank {board.phases_of}, which works longest"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True, overflow="ellipsis")
    table.add_column("last", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, style="cyan", max_width=_TREND)
    for name, values in board.metrics(max(1, most)).items():
        table.add_row(
            Text(shortened(printable(name), out.width - _BESIDE_NAME)),
            _last(name, values[-1]),
            spark(list(values), _TREND),
        )
    return Group(
        *parts,
        _line(f"of a step{whose}: {' · '.join(phases)}" if phases else ""),
        *_hosts(board.hosts),
        table,
        *sentence,
    )


def _hosts(hosts: Mapping[str, HostUse]) -> list[Text]:
    """Return a line with how busy they are, where that is measured; a terminal shows its beginning."""
    uses = [" ".join([host, *_shares(use)]) for host, use in hosts.items()]
    many = f"{len(hosts)} hosts, the least busy first" if len(hosts) > 1 else "host"
    return [_line(f"{many}: {' · '.join(uses)}")] if uses else []


def _shares(use: HostUse) -> list[str]:
    named = zip(("GPU", "CPU"), use, strict=True)
    return [f"{what} {percent(share)}" for what, share in named if share is not None]


def _last(name: str, value: float) -> str:
    unit = unit_of(name)
    return quantity(value, unit) if unit else significant(value, _DIGITS)


def _line(text: str) -> Text:
    return Text(printable(text), no_wrap=True, overflow="ellipsis")


def _bar(progress: Progress | None) -> list[str]:
    if progress is None or progress.fraction is None:
        return []
    done = round(progress.fraction * _BAR)
    return ["█" * done + "░" * (_BAR - done)]


def _progress(progress: Progress | None) -> list[str]:
    """Return where a run is, how much of it is done, and how long the rest takes, as far as each is known."""
    if progress is None:
        return ["no step has closed yet"]
    done = [] if progress.fraction is None else [percent(progress.fraction)]
    left = [] if not progress.seconds_left else [f"{seconds(progress.seconds_left)} left"]
    return [progress.place, *done, *left]
