"""A window stands in one place, and a writer goes through its states in one order; anything else is a bug of ours."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.step_streams import StepStreams
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.writer_state import WriterState
from tests.strategies import writer


def test_a_window_stands_among_the_open_steps_or_among_the_closed_ones() -> None:
    streams = StepStreams()
    attempt = streams.attempt(streams.stream("trainer", "step"), 0)
    window = StepWindow(0, 3, 0.0)
    attempt.insert(window)

    with pytest.raises(AssertionError, match="on two shelves"):
        attempt.retain(window)
    with pytest.raises(AssertionError, match="here twice"):
        attempt.insert(StepWindow(1, 3, 0.0))
    attempt.retain(attempt.close_oldest(1.0))

    assert (list(attempt.open), list(attempt.retained), attempt.last_closed) == ([], [3], 3)


def test_what_is_kept_although_it_was_never_open_has_closed() -> None:
    streams = StepStreams()
    attempt = streams.attempt(streams.stream("trainer", "time"), 0)

    attempt.retain(StepWindow(0, 7, 0.0))

    assert attempt.has_closed(7)
    assert not attempt.has_closed(8)


def test_a_writer_lives_on_only_where_it_was_replaced_and_is_on_a_attempt_once() -> None:
    state = WriterState(0, writer(), "trainer-0")
    with pytest.raises(AssertionError, match="was not replaced"):
        state.live_on()
    with pytest.raises(AssertionError, match="before it belongs to an attempt"):
        state.write_to("step", 0)
    state.enter(0)
    state.write_to("step", 0)
    state.begin(0)

    with pytest.raises(AssertionError, match="begins twice"):
        state.begin(0)
    state.replace(1.0, 2.0)
    state.live_on()

    assert state.replaced_at is None
