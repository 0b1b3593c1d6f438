"""A unit stands in one place, and a writer goes through its states in one order: anything else is a mistake of ours."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.lanes import Lanes
from otel_ml_service.aggregation.unit import Unit
from otel_ml_service.aggregation.writer_state import WriterState
from tests.strategies import writer


def test_a_unit_stands_among_the_open_steps_or_among_the_closed_ones() -> None:
    lanes = Lanes()
    lane = lanes.lane(lanes.track("trainer", "step"), 0)
    unit = Unit(0, 3, 0.0)
    lane.insert(unit)

    with pytest.raises(AssertionError, match="on two shelves"):
        lane.retain(unit)
    with pytest.raises(AssertionError, match="here twice"):
        lane.insert(Unit(1, 3, 0.0))
    lane.retain(lane.close_oldest(1.0))

    assert (list(lane.open), list(lane.retained), lane.last_closed) == ([], [3], 3)


def test_what_is_kept_although_it_was_never_open_has_closed() -> None:
    lanes = Lanes()
    lane = lanes.lane(lanes.track("trainer", "time"), 0)

    lane.retain(Unit(0, 7, 0.0))

    assert lane.has_closed(7)
    assert not lane.has_closed(8)


def test_a_writer_lives_on_only_where_it_was_replaced_and_is_on_a_lane_once() -> None:
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
