"""Spans of the steps that findings name, also of those long past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_ml_exporters.records import Span
from otel_ml_service.report.answer import troubles
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.step_view import StepName, by_step
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.span_steps import SpanSteps

__all__ = ["named_steps", "whole_steps"]

_STEPS = 20

Steps = Mapping[StepName, Sequence[Span]]


def named_steps(folder: RunFolder, run: Contents) -> Steps:
    """Return the spans of the steps that the most expensive findings name, of those the newest spans do not have."""
    newest = whole_steps(run, by_step(run.spans))
    names = [(one.role, one.axis, one.shows) for one in troubles(run)[:_STEPS]]
    stored = SpanSteps(folder.path / "spans.jsonl")
    found = {name: list(stored.of(*name)) for name in dict.fromkeys(names) if name not in newest}
    return {name: spans for name, spans in found.items() if spans}


def whole_steps(run: Contents, held: Steps) -> Steps:
    """Return the steps of which all spans are held; of thousands of ranks that may be none.

    Args:
        run: whose newest spans these are.
        held: all of them, by step.
    """
    if not run.is_cut:
        return held
    # Of the oldest step that is held some spans have left, or may have.
    oldest: dict[tuple[str, str], int] = {}
    for role, axis, step in held:
        oldest[role, axis] = min(step, oldest.get((role, axis), step))
    return {name: spans for name, spans in held.items() if name[2] > oldest[name[:2]]}
