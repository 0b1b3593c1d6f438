"""Runs that hold one of everything a report can show, with names that would be programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otel_ml_exporters.records import (
    Artifact,
    Image,
    Params,
    Record,
    RunStatus,
    Span,
    SpanBatch,
    StepRecord,
    Summary,
    Table,
    Text,
)
from otel_ml_service.findings.finding import COLUMNS
from otel_ml_service.findings.heatmap import Heatmap

HOSTILE = "</script><script>document.title = 'broken'</script>\"'><img src=x onerror=\"document.title='broken'\">"
LONG = "a" * 300

_PHASES = (("data", 0.1), ("forward", 0.4), ("backward", 0.3), ("all_reduce", 0.2))

_OF_ONE = (None,) * 5
"""What findings of several ranks, and of pauses, have at the end."""


def records_of_everything(*, ranks: int = 4, steps: int = 60, step_s: float = 1.0) -> list[Record]:
    """Return a run in which the last rank is slow in `forward` from step 20 to step 39."""
    made: list[Record] = [Params(1, 1000.0, {"lr": 0.1, "model": {"name": HOSTILE}, "world_size": ranks})]

    def add(kind: type, *fields: object, **named: object) -> None:
        made.append(kind(len(made) + 1, *fields, **named))

    heat = Heatmap()
    for step in range(steps):
        slow = 0.5 if 20 <= step < 40 else 0.0
        values = {
            "loss": math.nan if step == 30 else 2 / (step + 1),
            "loss/max": 3 / (step + 1),
            "reward": -1e308 if step == 0 else 1e308,
            HOSTILE: 1.0,
            "time/step": step_s + slow,
            "time/forward": 0.4 * step_s + slow,
            "time/forward/argmax": float(ranks - 1 if slow else step % ranks),
            "otel_ml/straggler/cost": slow,
        }
        heat.add(step, np.array([0.0] * (ranks - 1) + [slow * 2]))
        add(StepRecord, "trainer", "step", step, 0, 1000.0 + step, values, int(step == 25))
    add(SpanBatch, spans_of(range(steps - 6, steps), ranks))
    shown = ("forward", 21, "ab" * 8, "cd" * 16)
    slow = (
        "critical",
        "slow",
        ranks - 1,
        "forward",
        20,
        39,
        1.2,
        0.5,
        10.0,
        *shown,
        f"rank {ranks - 1}",
        0.5,
        *_OF_ONE,
    )
    rows = (slow, ("warning", "silent", 1, "", 25, 26, *[None] * 7, "rank 1", None, *_OF_ONE))
    add(Table, 1060.0, "otel_ml/findings", "step", steps - 1, COLUMNS, rows)
    picture = heat.picture(tuple(range(ranks)))
    assert picture is not None
    add(Image, 1060.0, "otel_ml/stragglers", "step", steps - 1, *picture)
    answers = [HOSTILE if step == 3 else f"{step}" * 40 for step in range(8)]
    samples = tuple((step, f"What is {step}?", answer, step / 10) for step, answer in enumerate(answers))
    add(Table, 1060.0, "samples", "step", steps - 1, ("step", "prompt", "response", "reward"), samples)
    add(Image, 1060.0, HOSTILE, "step", 3, picture.png, picture.width, picture.height, HOSTILE)
    add(Text, 1060.0, "note", "step", 3, f"line one\n{HOSTILE}\x1b[31m")
    add(
        Artifact,
        1061.0,
        HOSTILE,
        "checkpoint",
        "model.pt",
        None,
        "/elsewhere/model.pt",
        12345,
        "ab" * 32,
        59,
        ("best",),
    )
    add(Summary, 1062.0, {"test/accuracy": 0.97, "otel_ml/dropped/spool_full": 3.0, LONG: 1.0})
    add(RunStatus, 1063.0, "finished")
    return made


def spans_of(steps: range, ranks: int) -> Sequence[Span]:
    """Return the timers of steps of a second, every rank's."""
    found: list[Span] = []
    for step in steps:
        for rank in range(ranks):
            at = step * 10**9
            found.append(_span("step", at, at + 10**9 - 10**7, rank, step))
            for name, seconds in _PHASES:
                found.append(_span(name, at, at + int(seconds * 0.95e9), rank, step))
                at += int(seconds * 0.95e9)
    return found


def _span(name: str, begin: int, end: int, rank: int, step: int) -> Span:
    return Span("0" * 32, "0" * 16, None, name, begin, end, "trainer", rank, "step", step)
