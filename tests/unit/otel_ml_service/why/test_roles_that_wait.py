"""Roles wait for each other, so steps of all of them are longer for one cause: the answer is about whose it is."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import RunStatus, StepRecord
from otel_ml_service.why.answer import Answer
from tests.unit.otel_ml_service.why.asking import SLOW, asked
from tests.unit.otel_ml_service.why.jobs import finding, job, numbered


def answer_of(waits_s: float) -> Answer:
    """Ask a run whose trainer rank 2 takes 15 ms longer in `SLOW`; generators wait `waits_s` longer at that time."""
    found = finding(since=80, until=119, extra_s=0.0149)
    rows = [row for row in job(slow=SLOW, extra_s=0.015, findings=[found]) if not isinstance(row, RunStatus)]
    for row in [row for row in rows if isinstance(row, StepRecord)]:
        timers = {"generate": 0.008, "rl/loop/idle": 0.004 + (waits_s if row.step in SLOW else 0.0)}
        values = {f"generator/rollout/time/exposed/{name}": seconds for name, seconds in timers.items()}
        rows.append(StepRecord(0, "generator", "rollout", row.step, 0, row.time, values))
    return asked(numbered([*rows, RunStatus(0, 2000.0, "finished")]))


@pytest.mark.parametrize("waits_s", [0.010, 0.016])
def test_who_waits_for_a_slow_rank_a_little_longer_than_it_is_slow_does_not_stand_before_it(waits_s: float) -> None:
    answer = answer_of(waits_s)

    assert (answer.role, answer.verdict) == ("trainer", "caused")
    assert answer.sentences[1].startswith("Caused: rank 2 was slow in forward, steps 80-119")


def test_what_cost_far_more_than_a_slow_rank_stands_before_it() -> None:
    answer = answer_of(0.060)

    assert (answer.role, answer.verdict) == ("generator", "coincided")
