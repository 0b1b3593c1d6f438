from __future__ import annotations

import numpy as np

from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.warm_up import WarmUp


def step(*ranks: int, processes: tuple[str, ...] = ()) -> StepTimers:
    return StepTimers(ranks, ("forward",), np.ones((len(ranks), 1)), processes=processes)


def test_ranks_that_begin_together_are_compared_as_they_are() -> None:
    warm_up = WarmUp()

    assert [warm_up.step(step(0, 1)) for _ in range(3)] == [[], [], []]


def test_who_begins_alone_is_excused_for_16_steps_of_its_own() -> None:
    warm_up = WarmUp()
    warm_up.step(step(0, 1))
    excused = [warm_up.step(step(0, 2, 1)) for _ in range(10)]
    without = warm_up.step(step(0, 1))
    excused += [warm_up.step(step(0, 1, 2)) for _ in range(6)]

    assert (excused, without) == ([[2]] * 16, [])
    assert warm_up.step(step(0, 1, 2)) == []


def test_a_rank_that_was_started_again_warms_up_anew() -> None:
    warm_up = WarmUp()
    warm_up.step(step(0, 1, processes=("a", "b")))

    assert warm_up.step(step(0, 1, processes=("a", "c"))) == [1]
    assert warm_up.step(step(0, 1, processes=("d", "c"))) == [0, 1]
    assert warm_up.step(step(1, 0, processes=("c", "d"))) == [1, 0]
