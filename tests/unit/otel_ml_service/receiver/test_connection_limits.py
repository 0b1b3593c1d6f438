"""What all connections together may hold: up to the last byte, and one of them always."""

from __future__ import annotations

import pytest

from otel_ml_service.receiver.connection_limits import ConnectionLimits

MIB = 2**20


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
