"""How much may be acknowledged and not decided: a request that could not be stored gives its bytes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_ml_service.receiver.admission import Admission, OverloadedError, Stored
from otel_ml_service.receiver.decode import Decoded
from otel_ml_service.telemetry import Telemetry
from tests.otlp import FakeWriter

LIMIT = 4_000


def failing(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, OSError("disk full"))


def storing(decoded: Decoded, stored: Stored) -> None:
    stored(decoded, None)


def requests(count: int) -> list[bytes]:
    writer = FakeWriter()
    return [writer.step(step, {"loss": 1.0}).SerializeToString() for step in range(count)]


def take(store: Callable[[Decoded, Stored], None], bodies: list[bytes]) -> tuple[Admission, list[Exception | None]]:
    admission, answers = Admission(store, Telemetry(), LIMIT), []
    for body in bodies:
        admission.take("metrics", body, lambda _, error: answers.append(error))
    return admission, answers


def test_what_could_not_be_stored_is_not_counted_as_held_and_the_next_request_is_taken() -> None:
    bodies = requests(40)
    assert sum(map(len, bodies)) > 2 * LIMIT

    admission, answers = take(failing, bodies)

    assert [str(error) for error in answers] == ["disk full"] * 40
    assert admission.held == 0


def test_requests_are_refused_beyond_the_limit_until_some_are_decided() -> None:
    bodies = requests(40)
    fitting = next(count for count in range(40) if sum(map(len, bodies[: count + 1])) > LIMIT)
    admission, answers = take(storing, bodies[:fitting])
    assert answers == [None] * fitting
    assert admission.held == sum(map(len, bodies[:fitting]))

    with pytest.raises(OverloadedError):
        admission.take("metrics", bodies[fitting], lambda *_: None)
    admission.digested(len(bodies[0]))
    admission.take("metrics", bodies[fitting], lambda *_: None)

    assert admission.held == sum(map(len, bodies[1 : fitting + 1]))


def test_a_request_larger_than_the_limit_is_taken_when_it_is_alone() -> None:
    body = FakeWriter().step(0, {f"metric_{n}": 1.0 for n in range(200)}).SerializeToString()
    assert len(body) > LIMIT

    admission, answers = take(storing, [body])

    assert (answers, admission.held) == ([None], len(body))


@pytest.mark.parametrize(("store", "acknowledged"), [(storing, 1), (failing, 0)])
def test_a_request_counts_as_acknowledged_once_it_is_stored_and_not_where_it_is_not(
    store: Callable[[Decoded, Stored], None], acknowledged: int
) -> None:
    telemetry = Telemetry()

    Admission(store, telemetry, LIMIT).take("metrics", requests(1)[0], lambda *_: None)

    assert telemetry.value("requests", signal="metrics") == acknowledged
