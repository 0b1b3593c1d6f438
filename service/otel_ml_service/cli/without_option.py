"""`otel-ml why RUN STEPS --without rank=2,phase=forward`: what these steps would take without it."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict

import click

from otel_ml_exporters.span_lines import span_of
from otel_ml_service.cli.screen import screen
from otel_ml_service.stored_runs.rank_places import stages_of
from otel_ml_service.stored_runs.read_spans import records_and_spans
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.facts import Place
from otel_ml_service.why.without import Removed, removed, what_if

__all__ = ["print_without", "without_option"]


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
    place = Place(answer.role or "trainer", answer.axis or "step")
    spans = (span_of(row) for row in records_and_spans(run) if isinstance(row, dict))
    stages = stages_of(run, place.role) if without.stage is not None else {}
    found = what_if(spans, place, answer.first or 0, answer.last or 0, without, stages)
    if as_json:
        click.echo(json.dumps({"run": run.id, "first": answer.first, "last": answer.last, **asdict(found)}))
        return
    for line in textwrap.wrap(found.sentence, 80):
        screen().line(line)
