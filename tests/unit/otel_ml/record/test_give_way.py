"""The background thread hands the interpreter over between pieces of work, asked or not."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step
from tests.unit.otel_ml.record.conftest import Recorded

STEPS = 600
NAMES = [f"metric/{number}" for number in range(100)]
"""60,000 points: tens of pieces of work, also where a processor is several times as fast."""


@pytest.fixture
def nothing_is_taken() -> Iterator[None]:
    """A thread keeps the interpreter until it gives it away."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("nothing_is_taken")
def test_training_goes_on_while_much_is_collected(recorded: Recorded) -> None:
    # Where much else runs, the system may not let training on when it could go on: then it is tried again.
    assert any(_times_training_went_on(recorded) >= 5 for _ in range(10))


def _times_training_went_on(recorded: Recorded) -> int:
    for step in range(STEPS):
        set_step(step)
        log({name: float(step) for name in NAMES})
    numbers = [recorded.recorder.sequence.next()]

    collecting = threading.Thread(target=recorded.collect)
    collecting.start()
    while collecting.is_alive():
        time.sleep(0)  # lets go of the interpreter, as a training loop does that waits for a device
        numbers.append(recorded.recorder.sequence.next())

    # Each step takes a number: how often training went on, and found that some had been collected meanwhile.
    return sum(later - earlier > 1 for earlier, later in pairwise(numbers))
