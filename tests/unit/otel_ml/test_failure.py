"""What a process failed with, as it is recorded: no secret of it is shown, wherever a long traceback is cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_ml._internal.events.failure import LONGEST_TRACE, record_failure
from otel_ml.testing import Capture, capture

SECRET = "correct-horse-battery"


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as found:
        yield found


def fail(message: str) -> None:
    raise ValueError(message)


@pytest.mark.parametrize("cut_at", range(0, len(SECRET) - 8, 4))
def test_a_traceback_that_is_cut_within_a_secret_does_not_show_the_rest_of_it(captured: Capture, cut_at: int) -> None:
    after = LONGEST_TRACE - (len(SECRET) - cut_at) - 1  # and the line's end

    with pytest.raises(ValueError, match="api_key") as raised:
        fail(f"api_key={SECRET}{' ' * after}")

    record_failure(raised.value)

    [failure] = [event for event in captured.events if event.kind == "exception"]
    trace = failure.attributes["exception.stacktrace"]
    assert SECRET[cut_at:] not in trace
    assert len(trace) <= LONGEST_TRACE
