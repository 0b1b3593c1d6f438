"""What the service's log says of those who are refused: each once in a while, and no more lines than somebody reads."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from otel_ml_service.receiver.partial_success import Rejected
from otel_ml_service.receiver.refusal_log import WRONG_TOKEN, RefusalLog

FURTHER = "Further refusals of this minute are not written down; /metrics counts them all, by reason."


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.WARNING):
        yield caplog


def test_a_sender_that_comes_back_is_written_down_once_a_minute(log: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(iter([0.0, 1.0, 59.0, 60.0, 61.0]).__next__)

    for host in ("10.0.0.3", "10.0.0.3", "10.0.0.3", "10.0.0.3", "10.0.0.4"):
        refusals.tell(host, WRONG_TOKEN)

    assert log.messages == [
        f"Refused {host}: its bearer token is missing or wrong. Set OTEL_ML_TOKEN there to the service's."
        for host in ("10.0.0.3", "10.0.0.3", "10.0.0.4")
    ]


def test_of_one_sender_each_reason_is_written_down(log: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(Clock())

    for reason in ("it shows no token.", "it speaks no TLS.", "it shows no token."):
        refusals.tell("10.0.0.3", reason)

    assert log.messages == ["Refused 10.0.0.3: it shows no token.", "Refused 10.0.0.3: it speaks no TLS."]


def test_a_minute_has_a_hundred_lines_the_last_of_which_says_so_and_the_next_minute_as_many(
    log: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    refusals = RefusalLog(clock)

    for minute in range(3):
        for sender in range(250):
            clock.now += 0.1
            refusals.tell(f"sender {minute}.{sender}", WRONG_TOKEN)
        clock.now += 36.0  # a second more than the rest of the minute

    assert len(log.messages) == 300
    assert [log.messages.index(FURTHER), *Counter(log.messages).most_common(1)] == [99, (FURTHER, 3)]
    assert log.messages[100].startswith("Refused sender 1.0:")
    assert log.messages[200].startswith("Refused sender 2.0:")


def test_a_minute_is_over_after_sixty_seconds(log: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    for now in (60.0, 119.0, 120.0):
        clock.now = now
        for sender in range(99):
            refusals.tell(f"sender {now}.{sender}", WRONG_TOKEN)

    assert len(log.messages) == 99 + 1 + 99
    assert log.messages.index(FURTHER) == 99


def test_what_is_rejected_is_written_down_again_after_an_hour(log: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = RefusalLog(clock)
    for clock.now in (0.0, 3599.0, 3600.0, 7199.0, 7200.0):
        refusals.reject(Rejected("", "trainer", "ml.step='x' is not a step.", "rejected-points"))

    assert len(log.messages) == 3


def test_a_thousand_senders_are_remembered_and_beyond_it_one_may_be_written_down_again(
    log: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    refusals = RefusalLog(clock)

    def reject(number: int) -> None:
        clock.now += 1.0  # 60 lines a minute
        refusals.reject(Rejected("", f"job {'x' * number}", "ml.step='x' is not a step.", "rejected-points"))

    for number in range(1000):
        reject(number)
    reject(0)
    assert len(log.messages) == 1000
    reject(1000)
    reject(0)

    assert len(log.messages) == 1002


def test_reasons_that_differ_in_what_they_quote_are_one() -> None:
    reasons = [
        "ml.step='a' is not a step.", "ml.step='it is 7' is not a step.", 'ml.step="it\'s" is not a step.',
        "ml.step=1.5 is not a step.", "ml.step=22.75 is not a step.", "ml.axis=3 is not an axis.",
    ]  # fmt: skip

    kinds = [Rejected("run", "trainer", reason, "rejected-points").kind for reason in reasons]

    assert len(set(kinds)) == 3
    assert kinds[0] == kinds[1] == kinds[2]
    assert kinds[3] == kinds[4]
    assert Rejected("run", "learner", reasons[0], "rejected-points").kind not in kinds


def test_what_of_a_sender_is_rejected_is_said_with_whose_it_is_and_where_it_is_explained(
    log: pytest.LogCaptureFixture,
) -> None:
    refusals = RefusalLog(Clock())

    for sender in ("trainer", "learner", "trainer"):
        refusals.reject(Rejected("", sender, "ml.step='x' is not a step.", "rejected-points"))

    assert log.messages == [
        f"What {sender} sends is rejected, and lost: ml.step='x' is not a step. (otel-ml explain rejected-points)"
        for sender in ("trainer", "learner")
    ]
