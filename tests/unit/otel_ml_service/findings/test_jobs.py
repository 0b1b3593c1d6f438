"""Who is accused, in jobs of many kinds of which it is known who is slow."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.findings.detector import Detector
from otel_ml_service.findings.step_timers import StepTimers
from tests.quality.jobs import KINDS, STEPS, job
from tests.quality.parts import by_kind

JOBS = 8 * len(KINDS)


@pytest.fixture(scope="module")
def scores():
    return by_kind(range(JOBS))


def test_the_slow_rank_is_named_first(scores):
    assert scores["all"].culprits >= 60
    assert scores["all"].first >= 0.95 * scores["all"].culprits
    assert scores["all"].among_three >= 0.99 * scores["all"].culprits


def test_its_first_and_last_step_are_right_within_two(scores):
    assert scores["all"].exact >= 0.95 * scores["all"].culprits


def test_of_ten_thousand_steps_in_which_nobody_is_slow_at_most_one_accuses_somebody(scores):
    assert scores["all"].healthy >= 8000
    assert scores["all"].wrong <= 1, {kind: one.wrong for kind, one in scores.items()}


@pytest.mark.parametrize("seed", [0, 5])
def test_a_job_is_what_its_seed_says(seed):
    one, again, other = job(seed), job(seed), job(seed + len(KINDS))

    assert [table.tolist() for table in one.seconds()] == [table.tolist() for table in again.seconds()]
    assert len(list(one.seconds())) == STEPS
    assert (one.slow, one.kind) == (again.slow, other.kind)


def test_a_slow_down_below_the_threshold_is_none_however_long_it_lasts():
    detector, draw = Detector(), np.random.default_rng(3)
    for step in range(400):
        seconds = 1 + 0.01 * draw.standard_normal((16, 2))
        seconds[3] *= 1.065
        detector.step(step, StepTimers(tuple(range(16)), ("forward", "backward"), seconds))

    assert detector.open == {}


RECEIVES, COMPUTES, REDUCES = [np.nan, np.nan, 1.5, 1.0], [1.5, 1.0, 1.0, 1.0], [1.05, 1.55, 0.05, 0.55]


@pytest.mark.parametrize("stages", [(), (0, 0, 1, 1)], ids=["unsaid", "said"])
def test_who_waits_for_a_slow_stage_is_not_accused(stages):
    detector, draw = Detector(), np.random.default_rng(1)
    for step in range(40):
        seconds = np.array([RECEIVES, COMPUTES, REDUCES]).T * (1 + 0.005 * draw.standard_normal((4, 3)))
        detector.step(step, StepTimers((0, 1, 2, 3), ("recv", "compute", "all_reduce"), seconds, stages=stages))

    assert list(detector.open) == [(0, "compute")]


def test_what_a_rank_does_outside_of_its_timers_is_its_own():
    detector = Detector()
    for step in range(20):
        seconds = np.array([[0.06, 0.02, 0.08], [0.0, 0.08, 0.08]])
        detector.step(step, StepTimers((0, 1), ("untimed", "train_step", "step"), seconds))

    assert list(detector.open) == [(0, "untimed")]


def test_a_timer_that_is_called_as_if_it_sent_to_a_stage_makes_no_pipeline():
    detector, draw = Detector(), np.random.default_rng(0)
    for step in range(40):
        forward, backward = (usual + 0.01 * draw.standard_normal(2) for usual in (1.0, 2.0))
        forward[0] *= 1.5
        waits = (forward + backward).max() + 0.05 - forward  # gradients are reduced while `backward` runs
        seconds = np.column_stack((np.full(2, 0.001), forward, waits))
        detector.step(step, StepTimers((0, 1), ("send_metrics", "forward", "backward"), seconds))

    assert list(detector.open) == [(0, "forward")]
