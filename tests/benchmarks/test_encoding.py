"""What is measured of encoding is what a worker does: the benchmark calls it as the worker's own code does."""

from __future__ import annotations

from tests.benchmarks.child import answer_of
from tests.benchmarks.encoding import both


def test_collecting_a_step_and_a_span_is_measured() -> None:
    found = answer_of(both, pairs=1, turn_s=0.01)

    assert all(found[name] and min(found[name]) > 0 for name in ("ours", "theirs", "step", "span"))
