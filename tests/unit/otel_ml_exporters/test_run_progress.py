"""How far a run is, and how long it still takes: by the steps of who trains, and of nobody else."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Params, StepRecord
from otel_ml_exporters.run_progress import RunProgress


def row(role: str, axis: str, step: int, time: float, *, attempt: int = 0) -> StepRecord:
    return StepRecord(1, role, axis, step, attempt, time, {"loss": 0.5})


def progress_of(*rows: StepRecord) -> RunProgress:
    """Return the progress of a run of 100 steps."""
    progress = RunProgress()
    progress.add(Params(1, 0.0, {"max_steps": 100}))
    for one in rows:
        progress.add(one)
    return progress


def test_what_passed_before_the_first_step_says_nothing_of_how_long_steps_take() -> None:
    loading = [row("trainer", "time", at, 1000.0 + at) for at in range(0, 300, 10)]  # the GPUs are sampled meanwhile

    progress = progress_of(*loading, *(row("trainer", "step", step, 1300.0 + step) for step in range(5)))

    assert progress.seconds_left == pytest.approx(95.0)


def test_steps_of_another_role_are_not_those_of_the_run() -> None:
    every = [
        one
        for step in range(20)
        for one in (
            row("generator", "step", 10 * step, 1000.0 + step),
            row("trainer", "step", step, 1000.5 + step),
            row("evaluator", "step", step // 10, 1000.7 + step),
        )
    ]

    progress = progress_of(*every)

    assert progress.newest == every[-2]
    assert (progress.fraction, progress.seconds_left) == (pytest.approx(0.2), pytest.approx(80.0))


def test_steps_that_a_restart_does_again_are_counted_from_there() -> None:
    before = [row("trainer", "step", step, 1000.0 + step) for step in range(50)]
    again = [row("trainer", "step", 40 + step, 2000.0 + 2 * step, attempt=1) for step in range(5)]

    progress = progress_of(*before, *again)

    assert (progress.fraction, progress.seconds_left) == (pytest.approx(0.45), pytest.approx(110.0))


def test_a_run_without_an_axis_of_steps_is_as_far_as_its_first_other_one() -> None:
    progress = progress_of(
        row("trainer", "time", 0, 1000.0), row("a", "rollout", 3, 1001.0), row("b", "eval", 1, 1002.0)
    )

    assert progress.newest == row("a", "rollout", 3, 1001.0)


def test_the_length_of_a_run_is_said_by_its_own_parameters_before_those_of_a_part_of_it() -> None:
    progress = RunProgress()
    progress.add(Params(1, 0.0, {"max_steps": 100, "scheduler": {"max_steps": 5}, "eval": {"every": {"max_steps": 2}}}))
    progress.add(row("trainer", "step", 49, 1000.0))

    assert progress.fraction == pytest.approx(0.5)


def test_of_steps_whose_clock_was_set_back_the_time_left_is_not_known() -> None:
    progress = progress_of(*(row("trainer", "step", step, 1000.0 - step) for step in range(5)))

    assert progress.seconds_left is None


def test_a_run_of_one_step_is_done_with_it() -> None:
    progress = RunProgress()
    progress.add(Params(1, 0.0, {"max_steps": 1}))
    progress.add(row("trainer", "step", 0, 1000.0))

    assert progress.fraction == pytest.approx(1.0)
