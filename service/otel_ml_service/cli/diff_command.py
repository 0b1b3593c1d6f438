"""`otel-ml diff A B`: what differs between two runs, and what made B slower."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from otel_ml.quantities import seconds
from otel_ml_service.cli.parameters import RUN, dir_option
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.series_json import json_value
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import signed, steps_text
from otel_ml_service.stored_runs.run_folders import called, find
from otel_ml_service.why.comparison import Changed, Comparison, Difference, compared
from otel_ml_service.why.facts import read_facts

__all__ = ["command"]

_WIDTH = 80
_NAME = 30
"""Columns of a name."""

_LEAST = 16
"""Columns of a value, however narrow the terminal is."""

_ROWS = 12
"""Of a table; `--json` has all."""


@click.command("diff", epilog="Example: otel-ml diff baseline latest")
@click.argument("a", metavar="A", type=RUN)
@click.argument("b", metavar="B", type=RUN)
@dir_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(a: str, b: str, base: Path, as_json: bool) -> None:
    """Compare two runs, also while they go on: parameters, code, packages, phases, throughput, metrics at equal steps.

    Three sentences come first: whether B is slower than A, why (`caused`, `coincided` or `cannot tell`, as in `otel-ml
    why`), and which metrics differ. Differences have a 95 % confidence interval over steps.
    """
    runs = find(a, base), find(b, base)
    found = compared(*map(read_facts, runs))
    if as_json:
        click.echo(json.dumps(json_value(asdict(found))))
    else:
        _print(screen(), found, [called(run) for run in runs])


def _print(output: Screen, found: Comparison, names: Sequence[str]) -> None:
    # The second sentence is the verdict: why B is slower.
    for number_of, sentence in enumerate(found.sentences):
        for line in textwrap.wrap(sentence, _WIDTH):
            output.line(line, style="bold" if number_of == 1 else None)
    output.line()
    output.hanging("", f"A is {names[0]},", style="dim")
    output.hanging("", f"B is {names[1]}", style="dim")
    _print_changed(output, "Parameters", found.params)
    _print_changed(output, "Code", found.code)
    _print_changed(output, "Packages", found.packages)
    of_whom = " (of the rank that works longest in each)" if found.of_one_rank else ""
    title = f"Where the time goes{of_whom}" if found.adds_up else "Timers (slowest rank of each; they do not add up)"
    _print_differences(output, title, "phase", found.phases, _duration)
    _print_differences(output, "Throughput at equal steps", "metric", found.throughput, measured)
    _print_differences(output, "Metrics at equal steps", "metric", found.metrics, measured)
    if found.findings:
        output.line()
        output.line("Slow and silent ranks", style="bold")
        for text in found.findings:
            for line in textwrap.wrap(text, _WIDTH, initial_indent="- ", subsequent_indent="  "):
                output.line(line)


def _print_changed(output: Screen, title: str, changed: Sequence[Changed]) -> None:
    if not changed:
        return
    output.line()
    output.line(title, style="bold")
    shown = [(_cut(one.name, _NAME), one.a or "-", one.b or "-") for one in changed[:_ROWS]]
    # A program reads whole values; a person needs a line each.
    # Two columns of values share what the names and the two gaps (4) leave.
    most = (output.out.width - max(len(name) for name, _, _ in shown) - 4) // 2 if output.is_terminal else sys.maxsize
    rows = [[name, *_unlike(a, b, max(most, _LEAST))] for name, a, b in shown]
    output.table(["name", "A", "B"], rows)
    _print_rest(output, len(changed) - _ROWS)


def _print_differences(
    output: Screen, title: str, what: str, found: Sequence[Difference], shown: Callable[[str, float], str]
) -> None:
    if not found:
        return
    output.line()
    [first, *_] = found
    over = "" if first.first is None or first.last is None else f", {steps_text(first.first, first.last)}"
    output.line(f"{title}{over}", style="bold")
    # What is sure to differ comes first; within both parts the order stays, as `sorted` is stable.
    ordered = sorted(found, key=lambda one: not one.is_sure)
    rows = [
        [
            _cut(one.name, 26),
            *(_shown(one.name, value, shown) for value in (one.a, one.b)),
            signed(shown(one.name, one.by)),
            _between(one, shown),
        ]
        for one in ordered[:_ROWS]
    ]
    output.table([what, "A", "B", "B - A", "95 % between"], rows, right=["A", "B", "B - A"])
    _print_rest(output, len(found) - _ROWS)


def _duration(_name: str, value: float) -> str:
    return seconds(value)


def _shown(name: str, value: float | None, shown: Callable[[str, float], str]) -> str:
    return "-" if value is None else shown(name, value)


def _between(one: Difference, shown: Callable[[str, float], str]) -> str:
    if one.low is None or one.high is None:
        return "too few steps"
    return f"{shown(one.name, one.low)} and {shown(one.name, one.high)}"


def _print_rest(output: Screen, count: int) -> None:
    if count > 0:
        output.line(f"… and {count} more (--json)", style="dim")


def _unlike(a: str, b: str, most: int) -> tuple[str, str]:
    """Return two texts, or as much of each as shows that they differ.

    Examples:
        >>> _unlike("train.py --lr 0.1 --layers 24", "train.py --lr 0.2 --layers 24", 12)
        ('…--lr 0.1 -…', '…--lr 0.2 -…')
    """
    alike = next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))
    # The first character that differs comes to stand a little behind the middle of what is shown.
    begin = max(alike - most // 2 - 2, 0)
    # Both from one place, so that what is above and below each other are the same characters.
    return _part(a, begin, most), _part(b, begin, most)


def _part(text: str, begin: int, most: int) -> str:
    """Return at most so many characters of a text, those from `begin` on, or the last ones."""
    if len(text) <= most:
        return text
    begin = min(begin, len(text) - most)
    part = text[begin : begin + most]
    part = part if begin == 0 else f"…{part[1:]}"
    return part if begin + most == len(text) else f"{part[:-1]}…"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[1 - most :]}"
