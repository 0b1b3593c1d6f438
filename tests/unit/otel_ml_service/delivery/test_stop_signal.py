"""How long an exporter's thread pauses, whatever is asked of it meanwhile. Time passes where it waits alone."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.delivery.stop_signal import StoppedError, StopSignal

MOMENTS = st.integers(1, 20).map(float)


class Time(threading.Event):
    """A wait that is over at once, and a clock that says it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.happens: list[tuple[float, Callable[[], None]]] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout >= 0
        until = self.now + timeout
        while self.happens and self.happens[0][0] <= until and not self.is_set():
            self.now, happens = self.happens.pop(0)
            happens()
        if not self.is_set():
            self.now = until
        return self.is_set()


def paused(seconds: float, asked: float = 0.0, *, at: dict[float, Callable[[StopSignal], None]]) -> tuple[float, bool]:
    """Return after how long a pause ended, and whether it is too late for another try."""
    time = Time()
    signal = StopSignal(lambda: time.now)
    signal.wake = time
    for moment, happens in sorted(at.items()):
        if moment == 0:
            happens(signal)
        else:
            time.happens.append((time.now + moment, lambda happens=happens: happens(signal)))  # type: ignore[misc]
    time.clear()
    try:
        signal.pause(max(seconds, asked), asked=asked)
    except StoppedError:
        return time.now - 1000.0, True
    return time.now - 1000.0, False


def stop(timeout: float) -> Callable[[StopSignal], None]:
    return lambda signal: signal.stop_within(timeout)


def new_record(signal: StopSignal) -> None:
    signal.wake.set()


@given(seconds=MOMENTS, woken=st.sets(MOMENTS, max_size=5))
def test_new_records_do_not_shorten_a_pause(seconds: float, woken: set[float]) -> None:
    assert paused(seconds, at=dict.fromkeys(woken, new_record)) == (seconds, False)


@given(seconds=MOMENTS, when=MOMENTS.map(lambda moment: moment - 0.5), timeout=MOMENTS)
def test_being_asked_to_stop_ends_the_pause_that_is_under_way(seconds: float, when: float, timeout: float) -> None:
    assert paused(seconds, at={when: stop(timeout)}) == (min(seconds, when), False)


@given(seconds=MOMENTS, timeout=MOMENTS.map(lambda moment: moment - 0.5))
def test_a_pause_of_who_is_stopping_ends_at_the_deadline_at_the_latest(seconds: float, timeout: float) -> None:
    assert paused(seconds, at={0: stop(timeout)}) == (min(seconds, timeout), timeout < seconds)


@given(
    seconds=st.integers(1, 25).map(float),
    asked=st.just(0.0) | st.integers(1, 25).map(float),
    when=st.integers(0, 24).map(float),
)
def test_the_end_of_a_run_shortens_a_pause_to_two_seconds_or_what_the_backend_asked_for(
    seconds: float, asked: float, when: float
) -> None:
    whole = max(seconds, asked)
    shortened = max(asked, min(whole, 2.0))

    assert paused(seconds, asked, at={when: StopSignal.hurry}) == (min(whole, max(when, shortened)), False)


@pytest.mark.parametrize(("after", "waits"), [(27.5, 2.0), (30.5, 20.0)])
def test_half_a_minute_after_the_end_of_a_run_pauses_are_as_long_as_before(after: float, waits: float) -> None:
    time = Time()
    signal = StopSignal(lambda: time.now)
    signal.wake = time
    signal.hurry()
    time.clear()
    time.now += after
    began = time.now

    signal.pause(20.0)

    assert time.now - began == waits


@given(asked=st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=5))
def test_of_several_deadlines_the_earliest_holds_and_an_exporter_has_a_second_in_any_case(
    asked: list[tuple[float, float]],
) -> None:
    time = Time()
    signal = StopSignal(lambda: time.now)
    assert (signal.is_stopping, signal.has_time(), signal.left()) == (False, True, 1.0)
    deadlines = []
    for later, timeout in asked:
        time.now += later
        deadlines.append(time.now + timeout)
        signal.stop_within(timeout)
    left = min(deadlines) - time.now

    assert signal.is_stopping
    assert signal.has_time() == (left > 0)
    assert signal.left() == max(1.0, left)
