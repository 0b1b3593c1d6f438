"""How long a connection waits that asks too often: each request is due a moment after the one before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.receiver.connection_limits import RateLimit

RATE = 4


@given(
    began=st.integers(0, 10**6),
    pauses=st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.125, 0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=40),
)
def test_a_connection_may_ask_for_a_second_at_once_and_then_as_fast_as_the_rate(
    began: int, pauses: list[float]
) -> None:
    limit, now, due = RateLimit(RATE), float(began), 0.0

    for pause in pauses:
        now += pause
        due = max(due, now) + 1 / RATE  # when all that it has asked was asked at the rate

        assert limit.wait(now) == pytest.approx(max(0.0, due - now - 1.0))
