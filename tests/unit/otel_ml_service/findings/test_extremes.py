from __future__ import annotations

import numpy as np

from otel_ml_service.findings.extremes import Extreme, Extremes
from otel_ml_service.findings.step_timers import StepTimers

NAN = float("nan")


def timers(ranks: tuple[int, ...], phases: tuple[str, ...], *seconds: list[float]) -> StepTimers:
    return StepTimers(ranks, phases, np.array(seconds))


def test_ranks_are_named_with_their_mean_over_the_steps_in_which_they_had_the_timer() -> None:
    extremes = Extremes(2)
    extremes.add(timers((0, 1, 2), ("data", "forward"), [1.0, NAN], [3.0, 5.0], [2.0, 4.0]))
    extremes.add(timers((2, 1, 3), ("forward", "data"), [6.0, NAN], [NAN, 1.0], [1.0, 9.0]))

    assert extremes.take() == [
        Extreme("data", "slowest", 1, 3, 9.0, 1),
        Extreme("data", "slowest", 2, 1, 2.0, 2),
        Extreme("data", "fastest", 1, 0, 1.0, 1),
        Extreme("data", "fastest", 2, 1, 2.0, 2),
        Extreme("forward", "slowest", 1, 1, 5.0, 1),
        Extreme("forward", "slowest", 2, 2, 5.0, 2),
        Extreme("forward", "fastest", 1, 3, 1.0, 1),
        Extreme("forward", "fastest", 2, 1, 5.0, 1),
    ]
    assert extremes.take() == []


def test_ties_go_to_the_lower_rank() -> None:
    extremes = Extremes(3)
    extremes.add(timers((4, 2, 7), ("forward",), [1.0], [1.0], [1.0]))

    assert [(one.which, one.rank) for one in extremes.take()] == [
        ("slowest", 2), ("slowest", 4), ("slowest", 7), ("fastest", 2), ("fastest", 4), ("fastest", 7),
    ]  # fmt: skip


def test_a_timer_of_a_single_rank_has_no_slowest() -> None:
    extremes = Extremes(1)
    extremes.add(timers((0, 1), ("alone", "both"), [1.0, 1.0], [NAN, 2.0]))

    assert {one.timer for one in extremes.take()} == {"both"}
