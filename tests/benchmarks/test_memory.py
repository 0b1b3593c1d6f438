"""Whether a worker's memory is said to grow."""

from __future__ import annotations

import pytest

from tests.benchmarks.memory import MB, growth


@pytest.mark.parametrize(
    ("used", "grown"),
    [
        ([float(step) for step in range(100)], 50.0),
        ([20.0 + step % 2 for step in range(100)], 0.0),
        ([20.0] * 99 + [25.0], 0.0),
        ([step / 10 for step in range(50)] + [5.0] * 50, 1.3),
    ],
    ids=["grows", "comes and goes", "one that is off", "grew in the beginning"],
)
def test_memory_grows_by_what_the_last_quarter_is_above_the_second(used: list[float], grown: float) -> None:
    samples = [(step, int(mb * MB)) for step, mb in enumerate(used)]

    assert growth(samples).value == pytest.approx(grown, abs=0.06)
