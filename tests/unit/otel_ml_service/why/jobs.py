"""Runs of which it is known why their steps are slow and their metrics change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from otel_ml_exporters.records import JsonValue, Params, Record, RunStatus, StepRecord, Table, Text

__all__ = ["FINDINGS", "event", "finding", "job", "no_rank", "numbered"]

FINDINGS = ("level", "kind", "rank", "phase", "since", "until", "slowdown", "s per step", "s in all",
            "span of", "at step", "span", "trace", "place", "s saved per step")  # fmt: skip

Values = Callable[[int], Mapping[str, float]]


def job(
    *,
    steps: int = 160,
    slow: range = range(0),
    extra_s: float = 0.0,
    findings: Sequence[tuple[JsonValue, ...]] = (),
    more: Sequence[Record] = (),
    values: Values = lambda step: {},
    attempt: Callable[[int], int] = lambda step: 0,
    missing: frozenset[int] = frozenset(),
    is_timed: bool = True,
) -> list[Record]:
    """Return the records of a job of 4 ranks: 10 ms of `forward` and 2 ms of `all_reduce` a step, some 1 % of noise."""
    rng = np.random.default_rng(7)
    rows: list[Record] = [Params(0, 1000.0, {"lr": 0.1})]
    now = 1000.0
    for step in range(steps):
        late = extra_s if step in slow else 0.0
        forward, reduce = 0.010 * (1 + 0.01 * rng.normal()) + late, 0.002
        now += forward + reduce
        timers = {
            "time/exposed/forward": forward, "time/exposed/forward/rank": 2.0 if late else float(step % 4),
            "time/exposed/all_reduce": reduce, "time/exposed/all_reduce/rank": 0.0,
            "time/forward": forward, "time/all_reduce": reduce + late,
        }  # fmt: skip
        found = {**(timers if is_timed else {}), **values(step)}
        rows.append(StepRecord(0, "trainer", "step", step, attempt(step), now, found, int(step in missing)))
    rows += more
    if findings:
        rows.append(Table(0, now, "otel_ml/findings", "step", steps - 1, FINDINGS, tuple(findings)))
    return numbered([*rows, RunStatus(0, now, "finished")])


def finding(
    *, rank: int = 2, phase: str = "forward", since: int, until: int, extra_s: float, kind: str = "slow"
) -> tuple[JsonValue, ...]:
    cost, span = extra_s * (until - since + 1), (phase, since + 5, "ab12", "cd34")
    return ("critical", kind, rank, phase, since, until, 1.0, extra_s, cost, *span, f"rank {rank}", extra_s)


def no_rank(kind: str, place: str, phase: str, *, since: int, last: int, saved_s: float) -> tuple[JsonValue, ...]:
    """Return the row of a stage, or of a shape of the data, that lasts; `last` is the last step of the run."""
    measured = (0.77, 2 * saved_s, 2 * saved_s * (last - since + 1))
    return ("critical", kind, None, phase, since, None, *measured, None, None, None, None, place, saved_s)


def event(name: str, step: int, text: str) -> Text:
    return Text(0, 1000.0, name, "step", step, text)


def numbered(rows: Sequence[Record]) -> list[Record]:
    return [replace(row, seq=number) for number, row in enumerate(rows, 1)]
