"""Two that do the same take turns: what the machine's neighbors do then happens to both.

The garbage collector is on, as in a training program, and has run before each turn. Who begins alternates.
"""

from __future__ import annotations

import gc
import timeit
from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.caches import evict

__all__ = ["cold_call", "hot_calls", "in_turns"]

Turn = Callable[[], float]


def in_turns(
    ours: Turn, theirs: Turn, pairs: int, *, after_ours: Callable[[], object] = lambda: None
) -> tuple[list[float], list[float]]:
    """Return what each side's turns answered, pair by pair, after one of each that does not count."""
    sides = (ours, theirs)
    answers: tuple[list[float], list[float]] = ([], [])
    for pair in range(-1, pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            gc.collect()
            answer = sides[side]()
            if pair >= 0:
                answers[side].append(answer)
            if side == 0:
                after_ours()
    return answers


def hot_calls(statement: str, names: Mapping[str, Any], seconds: float, *, calls: int | None = None) -> Turn:
    """Return a turn that calls in a tight loop for about `seconds`, and answers µs a call."""
    timer = timeit.Timer(statement, "import gc; gc.enable()", globals=dict(names))
    timer.timeit(3)  # the first call of a name makes it known
    number = calls or max(1, int(seconds / (timer.timeit(3) / 3)))

    def turn() -> float:
        return timer.timeit(number) / number * 1e6

    return turn


def cold_call(statement: str, names: Mapping[str, Any], calls: int = 3) -> Turn:
    """Return a turn that evicts the caches before each call, and answers µs of the quickest call."""
    timer = timeit.Timer(statement, "import gc; gc.enable()", globals=dict(names))

    def turn() -> float:
        taken = []
        for _ in range(calls):
            evict()
            taken.append(timer.timeit(1) * 1e6)
        return min(taken)

    return turn
