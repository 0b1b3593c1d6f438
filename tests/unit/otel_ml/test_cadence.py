from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml._internal.cadence import TICK, sooner_at, until_tick

MOMENTS = st.floats(1.6e9, 2.2e9)
INTERVALS = st.sampled_from((0.01, 0.1, 0.3, 1.0, 2.5, 60.0))


@given(MOMENTS)
def test_every_process_looks_at_the_full_tenths_of_a_second(now: float) -> None:
    wait = until_tick(now)
    assert 0.0 < wait <= TICK + 0.001
    assert (now + wait) % TICK == pytest.approx(0.0, abs=1e-6) or (now + wait) % TICK == pytest.approx(TICK, abs=1e-6)


@given(MOMENTS)
def test_who_is_woken_a_little_before_a_tick_waits_for_the_next_one(now: float) -> None:
    tick = now + until_tick(now)
    assert until_tick(tick - 0.0005) > TICK / 2


@given(MOMENTS, INTERVALS)
def test_a_step_boundary_is_reason_to_send_about_half_an_interval_after_the_last_time(
    now: float, interval: float
) -> None:
    wait = sooner_at(now, interval) - now
    assert interval / 4 - 1e-6 <= wait <= 3 * interval / 4 + 1e-6


@given(MOMENTS, INTERVALS, st.floats(-0.24, 0.24), st.floats(-0.24, 0.24))
def test_ranks_that_sent_at_about_the_same_time_send_together_the_next_time(
    now: float, interval: float, early: float, late: float
) -> None:
    full = round(now / (interval / 2)) * (interval / 2)
    assert sooner_at(full + early * interval, interval) == sooner_at(full + late * interval, interval)
