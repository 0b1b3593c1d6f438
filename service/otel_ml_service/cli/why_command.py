"""`otel-ml why RUN [STEP | A-B]`: why steps were slow, or a metric changed, with the evidence."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict
from pathlib import Path

import click

from otel_ml.quantities import percent, seconds
from otel_ml_exporters.span_lines import span_of
from otel_ml_service.cli.parameters import METRIC, STEPS, dir_option, run_argument
from otel_ml_service.cli.screen import Screen, screen
from otel_ml_service.cli.series_json import json_value
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import signed
from otel_ml_service.stored_runs.failure import failure_lines
from otel_ml_service.stored_runs.rank_places import stages_of
from otel_ml_service.stored_runs.read_spans import records_and_spans
from otel_ml_service.stored_runs.run_folders import RunFolder, find
from otel_ml_service.stored_runs.shortened_name import shortened
from otel_ml_service.why.answer import Answer, Level, Phase
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import Place, read_facts
from otel_ml_service.why.without import Removed, removed, what_if

__all__ = ["command", "print_answer", "print_without", "without_option"]


class _RemovedType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.5 only
    """Ranks and a phase, or a stage."""

    name = "place"

    def convert(self, value: str | Removed, param: click.Parameter | None, ctx: click.Context | None) -> Removed:
        """Return what is taken away."""
        if isinstance(value, Removed):
            return value
        try:
            return removed(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


without_option = click.option(
    "--without",
    type=_RemovedType(),
    metavar="rank=R,phase=P",
    help="What these steps would take if rank R (2, 0-3, 0+4) took in P what the others do; or stage=S[,phase=P].",
)


def print_without(run: RunFolder, answer: Answer, without: Removed, *, as_json: bool) -> None:
    """Print what the steps of an answer would take without something, from the spans of all ranks."""
    # An answer about a run without steps names neither.
    place = Place(answer.role or "trainer", answer.axis or "step")
    spans = (span_of(row) for row in records_and_spans(run) if isinstance(row, dict))
    # Which ranks are a stage is in the run's own file alone, and is read where it is asked for.
    stages = stages_of(run, place.role) if without.stage is not None else {}
    found = what_if(spans, place, answer.first or 0, answer.last or 0, without, stages)
    if as_json:
        click.echo(json.dumps({"run": run.id, "first": answer.first, "last": answer.last, **json_value(asdict(found))}))
        return
    for line in textwrap.wrap(found.sentence, 80):
        screen().line(line)


_WIDTH = 80
"""Columns; a wider line is harder to read, not more exact."""

_PHASES = 8

_NAME = 24
"""Characters of a phase: the figures behind it stay within the width."""

_TRACE = 8
"""Last lines of a traceback; the text in the backends has all of it."""


@click.command(
    "why", epilog="Examples: otel-ml why latest · otel-ml why latest 412 · otel-ml why latest --metric reward"
)
@run_argument(required=False)
@click.argument("steps", metavar="[STEP | A-B]", type=STEPS, required=False)
@dir_option
@click.option("--metric", "-m", type=METRIC, help="Why this metric changed, instead of why steps were slow.")
@click.option("--axis", help="Axis of the steps; by default that of the metric, or the trainer's.")
@click.option("--role", help="Role whose steps are meant; by default the trainer.")
@without_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def command(
    run: str,
    steps: tuple[int, int] | None,
    base: Path,
    metric: str | None,
    axis: str | None,
    role: str | None,
    without: Removed | None,
    as_json: bool,
) -> None:
    """Tell why steps of RUN were slow, or why a metric changed, also while the run goes on.

    Three sentences come first: what happened, the verdict, what to do. The verdict is `caused` (something leads
    there, and 80 % of the effect goes with it), `coincided` (it changed at the same time) or `cannot tell`. Without a
    step it is about the steps that cost most.
    """
    first, last = steps or (None, None)
    folder = find(run, base)
    answer = why(read_facts(folder), Question(metric, first, last, axis, role))
    if without is not None:
        print_without(folder, answer, without, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(json_value(asdict(answer))))
    else:
        print_answer(screen(), answer)


def print_answer(output: Screen, answer: Answer) -> None:
    """Print an answer in at most 80 columns."""
    _print_failures(output, answer)
    styles = {"caused": "bold red", "coincided": "yellow", "cannot tell": "bold"}
    for number, sentence in enumerate(answer.sentences):
        for line in textwrap.wrap(sentence, _WIDTH):
            # The second sentence has the verdict.
            output.line(line, style=styles[answer.verdict] if number == 1 else None)
    _print_account(output, answer)
    _print_levels(output, answer, "task", "By task")
    _print_levels(output, answer, "version", "By policy version")
    _print_list(output, "Evidence", [one.text for one in answer.evidence])
    _print_list(output, "Look at", [f"{look.axis} {look.step:,}: {look.text}" for look in answer.look_at])


def _print_failures(output: Screen, answer: Answer) -> None:
    for sentence in failure_lines(answer.failures):
        for line in textwrap.wrap(sentence, _WIDTH):
            output.line(line, style="red")
    if answer.failures:
        # Behind the first empty line is the traceback, indented as Markdown has code.
        for line in textwrap.dedent(answer.failures[0].text.partition("\n\n")[2]).splitlines()[-_TRACE:]:
            output.line(line, style="dim")
        output.line()


def _print_account(output: Screen, answer: Answer) -> None:
    if not answer.account:
        return
    adds_up = "adds up to the step of the slowest rank" if answer.adds_up else "slowest rank of each; does not add up"
    # Where phases take turns the account is that of one rank: nothing tells who was waited for.
    if answer.of_rank is not None:
        adds_up = f"of rank {answer.of_rank}, which works longest; no spans show the path"
    output.line()
    output.line(f"Where the time goes ({adds_up})", style="bold")
    output.table(
        ["phase", "a step", "usual", "more", "share", "rank in front"],
        [_row(phase) for phase in answer.account[:_PHASES]],
        right=["a step", "usual", "more", "share"],
    )
    left_out = answer.account[_PHASES:]
    if left_out:
        rest = sum(phase.seconds for phase in left_out)
        output.line(f"… and {len(left_out)} more, {seconds(rest)} a step", style="dim")


def _print_levels(output: Screen, answer: Answer, by: str, title: str) -> None:
    found = [one for one in answer.levels if one.by == by]
    if not found:
        return
    output.line()
    output.line(title, style="bold")
    # Versions ascend, so the last ones are the newest.
    rows = [[shortened(one.name, _NAME), *_before_and_after(answer.about, one)] for one in found[-_PHASES:]]
    output.table([by, "before", "after", "change"], rows, right=["before", "after", "change"])
    if len(found) > _PHASES:
        output.line(f"… and {len(found) - _PHASES} before these (--json)", style="dim")


def _before_and_after(metric: str, one: Level) -> tuple[str, str, str]:
    before, after = ("-" if value is None else measured(metric, value) for value in (one.before, one.after))
    if one.before is None or one.after is None:
        return before, after, ""
    return before, after, signed(measured(metric, one.after - one.before))


def _row(phase: Phase) -> list[str]:
    more = "" if phase.usual_s is None else signed(seconds(phase.seconds - phase.usual_s))
    usual = "" if phase.usual_s is None else seconds(phase.usual_s)
    front = "" if phase.rank is None else f"{phase.rank}, in {phase.at_front:,} of {phase.steps:,}"
    return [shortened(phase.name, _NAME), seconds(phase.seconds), usual, more, percent(phase.share), front]


def _print_list(output: Screen, title: str, texts: list[str]) -> None:
    if not texts:
        return
    output.line()
    output.line(title, style="bold")
    for text in texts:
        for line in textwrap.wrap(text, _WIDTH, initial_indent="- ", subsequent_indent="  "):
            output.line(line)
