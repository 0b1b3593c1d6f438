"""What all connections together may hold, up to the last byte, and how long one waits that asks too often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.receiver.connection_limits import ConnectionLimits, RateLimit

MIB = 2**20
RATE = 4


@pytest.mark.parametrize(("held", "size", "is_taken"), [
    (9 * MIB, MIB + 1, False), (9 * MIB, MIB, True), (9 * MIB - 1, MIB + 1, True), (10 * MIB, MIB, True),
])  # fmt: skip
def test_a_request_is_taken_up_to_the_bound_and_one_of_a_mebibyte_always(held: int, size: int, is_taken: bool) -> None:
    limits = ConnectionLimits(most_bytes=10 * MIB)
    limits.grow(held, of=held)

    assert limits.grow(size, of=size) == is_taken
    assert limits.held == held + size, "whoever is refused gives it back"


def test_as_many_connect_as_may_and_another_one_when_one_has_left() -> None:
    limits = ConnectionLimits(most_connections=2)

    assert [limits.enter() for _ in range(3)] == [True, True, False]
    limits.leave()
    assert [limits.enter() for _ in range(2)] == [True, False]


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
