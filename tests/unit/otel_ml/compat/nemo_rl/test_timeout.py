"""The deadline checker."""

from __future__ import annotations

import pytest

from otel_ml.compat.nemo_rl import TimeoutChecker, convert_to_seconds
from otel_ml.exceptions import ConfigError


class Clock:
    """Seconds as the test says."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("otel_ml.compat.nemo_rl.timeout.monotonic", clock)
    return clock


@pytest.mark.feature("N29", "yes", "says once when it is time to save")
def test_it_is_time_to_save_once_when_the_time_is_over(clock: Clock) -> None:
    checker = TimeoutChecker("00:00:01:00")

    clock.now_s += 59.9
    assert not checker.check_save()
    clock.now_s += 0.1
    assert checker.check_save()
    clock.now_s += 1000
    assert not checker.check_save()


@pytest.mark.feature("N29", "yes", "the mean iteration counts as gone already")
def test_another_iteration_must_fit_before_the_deadline(clock: Clock) -> None:
    checker = TimeoutChecker("00:00:01:40", fit_last_save_time=True)
    checker.start_iterations()

    answers = []
    for seconds in (20, 40, 9, 2):
        clock.now_s += seconds
        checker.mark_iteration()
        answers.append(checker.check_save())

    # 60 s gone and 30 s a mean iteration: it fits. 69 + 23 fits. 71 s + 17.75 s fits still; at 83 s it does not.
    assert answers == [False, False, False, False]
    clock.now_s += 12
    assert checker.check_save()


@pytest.mark.feature("N29", "better", "marking an iteration before the first was started does not crash")
def test_marking_an_iteration_before_any_was_started_begins_them(clock: Clock) -> None:
    checker = TimeoutChecker("00:00:01:00", fit_last_save_time=True)

    checker.mark_iteration()
    clock.now_s += 30
    checker.mark_iteration()

    assert checker.check_save()


def test_without_a_deadline_it_is_never_time(clock: Clock) -> None:
    checker = TimeoutChecker(None)

    clock.now_s += 1e9

    assert not checker.check_save()


@pytest.mark.parametrize(("text", "seconds"), [("00:03:45:00", 13500), ("1:0:0:1", 86401)])
def test_a_time_is_written_in_days_hours_minutes_seconds(text: str, seconds: int) -> None:
    assert convert_to_seconds(text) == seconds


@pytest.mark.parametrize("text", ["03:45:00", "tomorrow", "", "00:03:-5:00"])
def test_a_time_that_is_written_otherwise_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="expected DD:HH:MM:SS"):
        TimeoutChecker(text)


def test_what_it_counts_can_be_read(clock: Clock) -> None:
    checker = TimeoutChecker("00:00:01:00")
    checker.start_iterations()
    clock.now_s += 20
    checker.mark_iteration()
    clock.now_s += 45
    checker.check_save()

    assert (checker.iteration_times, checker.last_saved, checker.last_save_time) == ([20.0], True, 60)
