"""Findings that name no rank: a stage with more work, and times that go with the shape of the data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.quality.pipelines import one_forward_one_backward, timers_of

PIPELINE = ("forward-recv", "forward-compute", "backward-recv", "backward-compute", "grads-reduce-scatter")
STAGES, REPLICAS = 4, 4

Work = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def pipeline(work: Work, steps: int = 40, step_findings: StepFindings | None = None) -> StepFindings:
    step_findings, draw = step_findings or StepFindings(), np.random.default_rng(0)
    where = tuple(rank % STAGES for rank in range(STAGES * REPLICAS))
    for step in range(steps):
        forward, backward = work(draw)
        seconds = timers_of(one_forward_one_backward, forward, backward, micro_batches=8)
        step_findings.step(step, StepTimers(tuple(range(len(where))), PIPELINE, seconds, stages=where), {})
    return step_findings


def even(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    forward = 0.1 * (1 + 0.005 * draw.standard_normal((REPLICAS, STAGES)))
    return forward, 2 * 0.1 * (1 + 0.005 * draw.standard_normal((REPLICAS, STAGES)))


def a_longer_last_stage(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    forward, backward = even(draw)
    forward[:, -1] *= 2.1
    backward[:, -1] *= 1.4
    return forward, backward


def a_slow_first_rank(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    forward, backward = even(draw)
    forward[0, 0] *= 2.5
    backward[0, 0] *= 2.3
    return forward, backward


def lengths_of_sequences(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    forward, backward = even(draw)
    length = draw.lognormal(0.0, 0.1, (REPLICAS, 1))
    return forward * length, backward * length**1.5


def places(step_findings: StepFindings) -> set[tuple[str, str]]:
    return {(one.kind, one.place) for one in step_findings}


def test_an_even_pipeline_is_no_finding():
    assert places(pipeline(even)) == set()


def test_a_stage_with_more_work_is_one_finding_and_none_of_its_ranks_is_one():
    [finding] = pipeline(a_longer_last_stage)

    assert (finding.kind, finding.place, finding.rank, finding.since) == ("stage", "stage 3", None, 0)
    assert finding.slowdown == pytest.approx(0.63, abs=0.03)  # (0.21 + 0.28) / 0.3
    assert finding.extra_s == pytest.approx(8 * 0.19, rel=0.03)


def test_a_slow_rank_is_not_taken_for_its_stage_and_costs_what_the_step_is_longer():
    step_findings = pipeline(a_slow_first_rank)

    def length(work: Work) -> float:
        table = timers_of(one_forward_one_backward, *work(np.random.default_rng(0)), micro_batches=8)
        return float(np.nansum(table, axis=1).max())

    assert places(step_findings) == {("slow", "rank 0")}
    assert step_findings.cost_s == pytest.approx(length(a_slow_first_rank) - length(even), rel=0.1)
    assert sum(one.saved_s for one in step_findings) == pytest.approx(step_findings.cost_s, rel=0.05)


@pytest.mark.parametrize(
    ("name", "parents"),
    [("forward-backward", {}), ("schedule", {"forward-recv": "schedule"})],
    ids=["Megatron", "spans"],
)
def test_a_timer_around_waiting_for_other_stages_accuses_none_of_them(name: str, parents: dict[str, str]) -> None:
    step_findings, draw = StepFindings(), np.random.default_rng(0)
    where = tuple(rank % STAGES for rank in range(STAGES * REPLICAS))
    for step in range(30):
        seconds = timers_of(one_forward_one_backward, *a_slow_first_rank(draw), micro_batches=8)
        whole = np.nansum(seconds[:, :4], axis=1)
        timers = StepTimers(
            tuple(range(len(where))), (*PIPELINE, name), np.column_stack((seconds, whole)), stages=where
        )
        step_findings.step(step, timers, parents)

    assert places(step_findings) == {("slow", "rank 0")}


def test_times_that_go_with_the_lengths_of_sequences_accuse_nobody():
    [finding] = pipeline(lengths_of_sequences)

    assert (finding.kind, finding.place, finding.rank) == ("shape", "nobody", None)
    assert finding.phase == "forward-compute and backward-compute"
    assert finding.correlation == pytest.approx(1.0, abs=0.02)
    assert finding.extra_s > 0


def with_a_longer_last_stage(times: float) -> Work:
    def work(draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        forward, backward = lengths_of_sequences(draw)
        forward[:, -1] *= times
        backward[:, -1] *= times
        return forward, backward

    return work


def test_where_times_go_with_the_data_a_stage_is_named_only_if_evening_it_out_would_save_more():
    assert places(pipeline(with_a_longer_last_stage(1.15))) == {("shape", "nobody")}
    assert places(pipeline(with_a_longer_last_stage(2.0))) == {("shape", "nobody"), ("stage", "stage 3")}


def test_no_stage_is_named_before_it_is_known_whether_times_go_with_the_data():
    named: set[str] = set()
    for steps in range(1, 40):
        named |= {place for kind, place in places(pipeline(with_a_longer_last_stage(1.15), steps)) if kind == "stage"}

    assert named == set()


def test_a_stage_is_named_where_it_has_one_rank_which_nothing_can_be_compared_with():
    step_findings = StepFindings()
    for step in range(12):
        seconds = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.5, 3.0]])
        step_findings.step(step, StepTimers((0, 1, 2, 3), ("forward", "backward"), seconds, stages=(0, 1, 2, 3)), {})

    assert places(step_findings) == {("stage", "stage 3")}


def test_a_verdict_is_over_when_what_it_says_is_no_longer_so():
    step_findings = pipeline(a_longer_last_stage)
    pipeline(even, step_findings=step_findings)
    assert places(step_findings) == set()

    step_findings = pipeline(lengths_of_sequences)
    pipeline(even, steps=120, step_findings=step_findings)
    assert places(step_findings) == set()


def in_line(change: Callable[[int, np.ndarray], None], steps: int = 60) -> StepFindings:
    step_findings, draw = StepFindings(), np.random.default_rng(1)
    for step in range(steps):
        work = np.array([1.0, 2.0]) * draw.lognormal(0.0, 0.02, (8, 2))
        change(step, work)
        waits = work.sum(axis=1).max() - work.sum(axis=1) + 0.05
        table = np.column_stack((work, waits))
        step_findings.step(step, StepTimers(tuple(range(8)), ("forward", "backward", "all_reduce"), table), {})
    return step_findings


def test_a_rank_that_becomes_slow_in_all_it_does_is_no_shape_of_the_data():
    def change(step: int, work: np.ndarray) -> None:
        if step >= 30:
            work[3] *= 1.6

    assert places(in_line(change)) == {("slow", "rank 3")}


def test_pauses_of_all_ranks_now_and_then_are_no_shape_of_the_data():
    draw = np.random.default_rng(5)

    def change(step: int, work: np.ndarray) -> None:
        work[draw.random(8) < 0.05] += 1.0

    assert places(in_line(change)) == set()


def test_what_was_found_goes_on_after_a_restart():
    before = pipeline(a_longer_last_stage)
    after = StepFindings(tuple(before))

    found: list[Finding] = list(pipeline(a_longer_last_stage, steps=12, step_findings=after))

    assert [(one.kind, one.place) for one in found] == [("stage", "stage 3")]
