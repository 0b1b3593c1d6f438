"""The timers of a run: what each took, and whose it was."""

from __future__ import annotations

import math
from collections.abc import Mapping

from otel_ml_exporters.records import StepRecord
from otel_ml_service.report.timing import Timer, timers
from otel_ml_service.stored_runs.run_history import history


def found(*steps: Mapping[str, float], axis: str = "step") -> dict[str, Timer]:
    rows = [StepRecord(at + 1, "trainer", axis, at, 0, 10.0 + at, values) for at, values in enumerate(steps)]
    return {timer.name: timer for timer in timers(history(rows))}


def test_a_timer_has_its_mean_its_longest_its_sum_and_its_share_of_the_steps_that_were_timed() -> None:
    every = found(
        {"time/step": 1.0, "time/forward": 0.5, "time/forward/argmax": 3.0},
        {"time/step": 3.0, "time/forward": 1.5, "time/forward/argmax": 1.0},
        {"time/forward": 4.0, "time/forward/argmax": 3.0},  # killed in it
    )

    assert list(every) == ["forward", "step"]
    assert every["forward"] == Timer("forward", "", 3, 2.0, 4.0, 6.0, 0.5, 3, None, 2)
    assert every["step"] == Timer("step", "", 2, 2.0, 3.0, 4.0, 1.0, None, None, 1)


def test_without_the_time_of_steps_there_are_no_shares() -> None:
    assert found({"time/forward": 0.5})["forward"].share is None


def test_what_is_below_0_is_no_time() -> None:
    every = found({"time/step": -1.0, "time/forward": -1.0}, {"time/step": 2.0, "time/forward": 0.0})

    assert every["forward"] == Timer("forward", "", 1, 0.0, 0.0, 0.0, 0.0, None, None, 1)
    assert found({"time/forward": -1.0})["forward"] == Timer("forward", "", 0, 0.0, 0.0, 0, None, None, None, 0)


def test_shares_are_what_is_exposed_where_there_is_an_account() -> None:
    exposed = {"time/exposed/forward": 3.0, "time/exposed/forward/rank": 2.0,
               "time/exposed/sync": 1.0, "time/exposed/sync/rank": 0.0}  # fmt: skip
    mine = {"time/exposed/forward": 2.0, "time/exposed/forward/rank": 1.0,
            "time/exposed/sync": 2.0, "time/exposed/sync/rank": 0.0}  # fmt: skip
    timed = {"time/step": 10.0, "time/forward": 5.0, "time/sync": 5.0, "time/forward/argmax": 7.0}

    every = found({**timed, **exposed}, {**timed, **mine})

    assert (every["forward"].share, every["forward"].slowest) == (5 / 8, 2)
    assert (every["sync"].share, every["sync"].slowest) == (3 / 8, 0)
    assert (every["step"].share, every["step"].slowest) == (None, None)


def test_further_reductions_and_ranks_of_a_timer_are_no_timers() -> None:
    every = found({"time/forward": 1.0, "time/forward/mean": 1.0, "time/forward/rank_3": 1.0, "time/forward/inner": 1.0,
                   "time/other/mean": 1.0, "generator/time/work": 2.0})  # fmt: skip

    assert set(every) == {"forward", "forward/inner", "other/mean", "generator/work"}
    assert every["generator/work"].place == "generator/"


def test_a_rank_that_is_no_number_is_not_the_slowest() -> None:
    ranks = (math.nan, math.inf, -1.0, 0.0)

    every = found(*({"time/forward": 1.0, "time/forward/argmax": rank} for rank in ranks))

    assert every["forward"].slowest == 0
