"""What is called slow, since when, how much, and when it is over."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.findings.detector import Detector
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers, only_times

NAN = float("nan")


def run(detector: Detector, steps: range, **phases: list[float]) -> list[Finding]:
    """Feed the same times at every step; return all changes."""
    seconds = only_times(np.array(list(phases.values())).T)
    timers = StepTimers(tuple(range(len(seconds))), tuple(phases), seconds)
    return [change for step in steps for change in detector.step(step, timers)]


def test_a_slow_rank_is_named_with_its_phase_its_first_step_and_its_price() -> None:
    detector = Detector()
    assert run(detector, range(20), forward=[1.0] * 4, backward=[2.0] * 4) == []

    [found] = run(detector, range(20, 30), forward=[1.0, 1.0, 1.3, 1.0], backward=[2.0] * 4)

    assert (found.kind, found.rank, found.phase, found.level, found.since) == ("slow", 2, "forward", "warning", 20)
    [now] = detector.open.values()
    assert now.slowdown == pytest.approx(0.3)
    assert now.extra_s == pytest.approx(0.3)
    assert now.cost_s == pytest.approx(10 * 0.3)
    assert detector.cost_s == pytest.approx(0.3)


def test_three_slow_steps_are_a_burst_and_four_are_a_finding() -> None:
    detector = Detector()
    run(detector, range(20), forward=[1.0] * 4)

    assert run(detector, range(20, 23), forward=[1.0, 1.0, 9.0, 1.0]) == []
    assert [found.since for found in run(detector, range(23, 24), forward=[1.0, 1.0, 9.0, 1.0])] == [20]


def test_a_finding_is_over_when_the_rank_keeps_up_again_and_tells_what_it_cost() -> None:
    detector = Detector()
    run(detector, range(30), forward=[1.0, 1.0, 1.5])

    changes = run(detector, range(30, 40), forward=[1.0] * 3)

    over = changes[-1]
    assert over.is_over
    assert (over.since, over.last) == (0, 29)
    assert over.cost_s == pytest.approx(30 * 0.5)
    assert over.extra_s == pytest.approx(0.5)
    assert not detector.open


def test_a_finding_ends_with_its_last_slow_step_though_the_rank_is_a_little_longer_in_the_next_two() -> None:
    detector = Detector()
    run(detector, range(80), forward=[1.0] * 4)
    run(detector, range(80, 90), forward=[1.0, 1.0, 2.5, 1.0])
    run(detector, range(90, 92), forward=[1.0, 1.0, 1.12, 1.0])

    [over] = [change for change in run(detector, range(92, 100), forward=[1.0] * 4) if change.is_over]

    assert (over.since, over.last) == (80, 89)
    assert over.cost_s == pytest.approx(10 * 1.5)


def test_a_rank_that_is_less_slow_than_it_was_stays_slow() -> None:
    detector = Detector()
    run(detector, range(20), forward=[1.0] * 4)
    run(detector, range(20, 40), forward=[1.0, 1.0, 2.0, 1.0])

    assert not [change for change in run(detector, range(40, 80), forward=[1.0, 1.0, 1.15, 1.0]) if change.is_over]
    assert detector.open[2, "forward"].since == 20


def test_one_good_step_does_not_end_a_finding() -> None:
    detector = Detector()
    run(detector, range(30), forward=[1.0, 1.0, 1.2])

    assert run(detector, range(30, 31), forward=[1.0] * 3) == []
    assert detector.open


def test_half_as_slow_again_is_critical_and_a_warning_only_clearly_below() -> None:
    detector = Detector()
    run(detector, range(20), forward=[1.0, 1.0, 1.3])

    assert [found.level for found in run(detector, range(20, 40), forward=[1.0, 1.0, 1.6])] == ["critical"]
    assert run(detector, range(40, 60), forward=[1.0, 1.0, 1.45]) == []
    assert [found.level for found in run(detector, range(60, 80), forward=[1.0, 1.0, 1.3])] == ["warning"]


@pytest.mark.feature("F22", "better", "the rank that is waited for is told from those that wait, step by step")
def test_those_who_wait_for_a_slow_rank_are_not_slow() -> None:
    for slow in ([1.3, 1.0], [1.3, 1.0, 1.0], [1.3, 1.2, 1.0, 1.0, 1.0]):
        waits = [0.1 + max(slow) - own for own in slow]
        detector = Detector()

        found = run(detector, range(30), forward=slow, all_reduce=waits)

        assert {(one.rank, one.phase) for one in found} == {
            (rank, "forward") for rank, own in enumerate(slow) if own > 1.0
        }


def test_the_timer_around_a_slow_one_is_not_blamed_too() -> None:
    found = run(Detector(), range(30), forward=[1.0, 1.0, 1.5], step=[2.0, 2.0, 2.5])

    assert {one.phase for one in found} == {"forward"}


def test_a_gpu_that_is_slow_in_everything_is_slow_in_every_phase() -> None:
    found = run(Detector(), range(30), forward=[1.0, 1.0, 1.3], backward=[2.0, 2.0, 2.6])

    assert {one.phase for one in found} == {"forward", "backward"}


def test_twice_as_long_for_next_to_nothing_is_no_finding() -> None:
    assert run(Detector(), range(40), tick=[1e-4, 1e-4, 2e-4], forward=[1.0] * 3) == []
    assert run(Detector(), range(40), tick=[1e-4, 1e-4, 5e-4]) == []


def test_a_timer_of_one_rank_alone_is_compared_with_nobody() -> None:
    assert run(Detector(), range(40), checkpoint=[5.0, NAN, NAN], forward=[1.0] * 3) == []


def test_a_rank_without_a_timer_at_some_steps_is_judged_by_the_others() -> None:
    detector = Detector()
    for step in range(40):
        times = [[1.0], [1.0], [NAN if step % 2 else 1.5]]
        detector.step(step, StepTimers((0, 1, 2), ("evaluate",), np.array(times)))

    assert list(detector.open) == [(2, "evaluate")]


@pytest.mark.parametrize("broken", [float("inf"), float("-inf"), NAN, 0.0, 1.7e308, -1.7e308])
def test_times_that_are_no_times_find_nothing_and_break_nothing(broken: float) -> None:
    found = run(Detector(), range(20), forward=[1.0, 1.0, 1.0], nothing=[broken] * 3, other=[1.0, 1.0, broken])

    assert found == []


def test_a_step_of_nobody_is_no_mistake() -> None:
    nobody = StepTimers((), (), np.zeros((0, 0)), frozenset({3}))

    assert [one.kind for one in Detector().step(0, nobody)] == ["silent"]


def test_a_silent_rank_is_found_at_once_critical_when_it_lasts_and_over_when_heard() -> None:
    detector = Detector()
    timers = StepTimers((0, 1), ("forward",), np.ones((2, 1)))
    without = StepTimers((0,), ("forward",), np.ones((1, 1)), frozenset({1}))

    found = [change for step in range(3) for change in detector.step(step, timers)]
    found += [change for step in range(3, 8) for change in detector.step(step, without)]
    found += detector.step(8, timers)

    assert [(one.kind, one.rank, one.level, one.since, one.last, one.is_over) for one in found] == [
        ("silent", 1, "warning", 3, 3, False),
        ("silent", 1, "critical", 3, found[1].last, False),
        ("silent", 1, "critical", 3, 7, True),
    ]


def test_what_was_open_before_a_restart_of_the_service_goes_on_and_ends() -> None:
    before = Finding("slow", 1, "forward", "warning", 7, 20, slowdown=0.3, extra_s=0.3, cost_s=4.2)
    detector = Detector(open_findings=(before,))

    assert run(detector, range(21, 25), forward=[1.0, 1.3, 1.0]) == []
    assert detector.open[1, "forward"].since == 7
    assert detector.open[1, "forward"].cost_s == pytest.approx(4.2 + 4 * 0.3)
    [over] = run(detector, range(25, 40), forward=[1.0] * 3)
    assert over.is_over


def test_ranks_that_join_later_are_looked_at_too() -> None:
    detector = Detector()
    run(detector, range(10), forward=[1.0] * 2)

    assert [one.rank for one in run(detector, range(10, 35), forward=[1.0, 1.0, 1.0, 1.4])] == [3]


@pytest.mark.parametrize("order", [("data", "work", "step"), ("step", "data", "work")])
@pytest.mark.parametrize("scatter", [0.001, 0.004])
def test_of_a_slow_timer_and_the_one_around_it_the_slow_one_is_told_whichever_is_certain_first(
    order: tuple[str, ...], scatter: float
) -> None:
    told = set()
    for seed in range(60):
        draw, detector = np.random.default_rng(seed), Detector()
        for step in range(60):
            work, data, rest = draw.exponential(scatter, (3, 3)) * [[1.0], [0.25], [0.3]]
            work += 0.02 + np.array([0.0, 0.03, 0.0]) * (step >= 40)
            of = {"work": work, "data": data, "step": work + data + rest}
            timers = StepTimers((0, 1, 2), order, np.stack([of[phase] for phase in order], axis=1))
            told |= {(one.rank, one.phase) for one in detector.step(step, timers) if one.rank == 1 and step >= 40}

    assert told == {(1, "work")}


@pytest.mark.parametrize("ranks", [2, 4])
def test_where_one_timer_varies_with_the_data_nobody_is_slow_for_having_had_the_longest_a_few_times(ranks: int) -> None:
    accused = 0
    for seed in range(60):
        rng, detector = np.random.default_rng(seed), Detector()
        found = []
        for step in range(12):
            work = rng.uniform(0.025, 0.125, ranks)
            seconds = np.stack([work, work.max() - work + 0.003], axis=1)
            found += detector.step(step, StepTimers(tuple(range(ranks)), ("forward", "all_reduce"), seconds))
        accused += bool(found)

    assert accused <= 2


def test_a_rank_that_is_slow_is_found_where_one_timer_varies_with_the_data() -> None:
    rng, detector = np.random.default_rng(4), Detector()
    for step in range(80):
        work = rng.uniform(0.08, 0.12, 4) * np.array([1.0, 1.0, 1.5, 1.0])
        seconds = np.stack([work, work.max() - work + 0.003], axis=1)
        detector.step(step, StepTimers((0, 1, 2, 3), ("forward", "all_reduce"), seconds))

    assert [(one.rank, one.since) for one in detector.open.values()] == [(2, 0)]


def test_a_slow_rank_is_slow_in_the_timer_by_its_new_name_and_no_longer_by_the_old_one() -> None:
    detector, slow = Detector(), [0.02, 0.05, 0.02, 0.02]
    wait = [0.033, 0.003, 0.033, 0.033]
    begun = run(detector, range(40), forward=slow, all_reduce=wait)

    changes = run(detector, range(40, 80), fwd=slow, all_reduce=wait)

    [over] = [one for one in changes if one.is_over]
    assert [(one.rank, one.phase) for one in begun] == [(1, "forward")]
    assert (over.rank, over.phase, over.since, over.last) == (1, "forward", 0, 39)
    assert over.extra_s == pytest.approx(0.03)
    assert [(one.rank, one.phase, one.since) for one in detector.open.values()] == [(1, "fwd", 40)]


def test_a_rank_that_is_slow_in_a_timer_of_every_tenth_step_stays_slow_between_these() -> None:
    detector = Detector()
    for step in range(100):
        seldom = {"evaluate": [1.0, 1.0, 2.0]} if step % 10 == 0 else {}
        run(detector, range(step, step + 1), forward=[1.0] * 3, **seldom)

    assert [(one.rank, one.phase, one.since) for one in detector.open.values()] == [(2, "evaluate", 0)]


def test_a_step_that_was_a_little_longer_by_chance_right_before_is_not_part_of_what_is_found() -> None:
    detector = Detector()
    run(detector, range(20), forward=[1.0] * 4)
    run(detector, range(20, 21), forward=[1.0, 1.15, 1.15, 1.0])
    run(detector, range(21, 22), forward=[1.0] * 4)

    run(detector, range(22, 32), forward=[1.0, 1.0, 4.0, 1.0])

    [found] = detector.open.values()
    assert (found.rank, found.since) == (2, 22)
    assert found.cost_s == pytest.approx(10 * 3.0)


def test_what_a_step_is_shorter_without_a_rank_is_a_mean_over_the_steps_that_have_its_timer() -> None:
    found, slow = StepFindings(), [0.02, 0.05, 0.02, 0.02]
    changes: list[Finding] = []
    for step in range(80):
        seconds = np.stack([slow, np.max(slow) - np.array(slow) + 0.003], axis=1)
        timers = StepTimers((0, 1, 2, 3), ("forward" if step < 40 else "fwd", "all_reduce"), seconds)
        changes += found.step(step, timers, {})

    [over] = [one for one in changes if one.is_over]
    assert (over.phase, over.last, over.saved_s) == ("forward", 39, pytest.approx(0.03))


@pytest.mark.parametrize("by", [1, 10, 1_000_000])
def test_steps_whose_numbers_go_up_by_more_than_one_are_steps_all_the_same(by: int) -> None:
    """A step may be the number of tokens that were seen."""
    detector, draw = Detector(), np.random.default_rng(1)
    found: list[Finding] = []
    for number in range(60):
        seconds = draw.lognormal(0.0, 0.01, (4, 1))
        seconds[2, 0] *= 1.4 if 20 <= number < 40 else 1.0
        found += detector.step(number * by, StepTimers((0, 1, 2, 3), ("forward",), seconds))

    assert [(one.rank, one.since, one.is_over) for one in found] == [(2, 20 * by, False), (2, 20 * by, True)]
    assert found[1].last == 39 * by
    assert found[1].slowdown == pytest.approx(0.4, abs=0.05)
    assert found[1].extra_s == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("timing", [(1,), (1, 3), (0, 1, 2)], ids=["one", "half", "all but one"])
def test_what_a_rank_does_not_time_is_not_untimed_beside_those_who_do(timing: tuple[int, ...]) -> None:
    compute = [0.3 if rank in timing else NAN for rank in range(4)]
    untimed = [0.01 if rank in timing else 0.31 for rank in range(4)]

    assert run(Detector(), range(40), untimed=untimed, compute=compute, step=[0.31] * 4) == []


def test_of_two_ranks_the_one_without_timers_is_not_slow_outside_of_them() -> None:
    assert run(Detector(), range(40), untimed=[0.01, 0.31], compute=[0.3, NAN], step=[0.31] * 2) == []


def test_who_takes_longer_outside_of_its_timers_than_others_for_the_same_is_slow_though_it_times_less() -> None:
    detector = Detector()
    untimed, compute, all_reduce = [0.01, 0.01, 0.01, 0.51], [0.3, 0.3, 0.3, NAN], [0.21, 0.21, 0.21, 0.01]
    run(detector, range(40), untimed=untimed, compute=compute, all_reduce=all_reduce, step=[0.52] * 4)

    [found] = detector.open.values()
    assert (found.rank, found.phase) == (3, "untimed")
    assert found.extra_s == pytest.approx(0.2)


def test_who_times_whole_steps_alone_is_slow_in_these() -> None:
    detector = Detector()
    run(detector, range(40), untimed=[0.01, 0.01, 0.01, 0.51], compute=[0.3, 0.3, 0.3, NAN], step=[0.31] * 3 + [0.51])

    [found] = detector.open.values()
    assert (found.rank, found.phase) == (3, "step")
    assert found.extra_s == pytest.approx(0.2)
