"""Whatever a network does, the other clock is within the bound that is said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml._internal.transport.clock_offset import DRIFT, ClockOffset

HOUR = 3600.0
DELAYS = st.floats(0.0, 5.0)
EXCHANGES = st.lists(st.tuples(st.floats(0.0, HOUR), DELAYS, DELAYS), min_size=1, max_size=30)
TINY = 1e-6  # of numbers as large as an uptime


@given(EXCHANGES, st.floats(-HOUR, HOUR), st.floats(-DRIFT, DRIFT), st.floats(0.0, HOUR))
def test_a_clock_that_is_an_hour_off_and_drifts_is_within_the_bound(
    exchanges: list[tuple[float, float, float]], skew: float, drift: float, later: float
) -> None:
    def theirs(own: float) -> float:
        return own + skew + drift * own

    clock, now = ClockOffset(), 0.0
    for wait, there, back in exchanges:
        sent = now + wait
        now = sent + there + back
        clock.add(sent, theirs(sent + there), now)

        offset, bound = clock.at(now) or (0.0, -1.0)
        assert abs(theirs(now) - now - offset) <= bound + TINY
        assert bound <= (there + back) * (0.5 + DRIFT) + TINY, "never worse than the newest exchange alone"

    offset, bound = clock.at(now + later) or (0.0, -1.0)
    assert abs(theirs(now + later) - now - later - offset) <= bound + TINY


@given(st.floats(-HOUR, HOUR), st.floats(-HOUR, HOUR), DELAYS, DELAYS)
def test_another_machine_under_the_same_address_is_known_from_its_first_answer(
    before: float, after: float, there: float, back: float
) -> None:
    clock = ClockOffset()
    clock.add(0.0, before, 0.0)
    sent = 10.0

    clock.add(sent, sent + there + after, sent + there + back)

    offset, bound = clock.at(sent + there + back) or (0.0, -1.0)
    is_told_apart = abs(after - before) > there + back + DRIFT * 100
    assert not is_told_apart or abs(after - offset) <= bound + TINY


def test_before_the_first_answer_nothing_is_known() -> None:
    assert ClockOffset().at(5.0) is None
