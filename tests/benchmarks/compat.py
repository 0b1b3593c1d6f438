"""What a program pays that changed only its import: each call beside the original's own, in turns, in one process."""

from __future__ import annotations

import itertools

from tests.benchmarks.calls import TEN
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, middle, ratio
from tests.benchmarks.originals import ORIGINALS, install
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["measure"]

PAIRS = 10
"""Before each turn garbage is looked for, which takes half a second where a framework is imported; and what is compared
differs by far more than the turns do."""


def measure(size: Size) -> Found:
    """Measure each original in a process of its own."""
    install()
    figures: dict[str, Figure] = {}
    with sink() as url:
        for name in [name for name in ORIGINALS if name not in size.left_out]:
            ours, theirs = answer_of(beside, env=sending_to(url), name=name, pairs=PAIRS, turn_s=size.turn_s)
            figures[f"{name}.call"] = middle(theirs, "µs", better="neither")
            figures[f"{name}.compat"] = middle(ours, "µs")
            figures[f"{name}.ratio"] = ratio(ours, theirs)
    return Found(figures)


def beside(name: str, pairs: int, turn_s: float) -> tuple[list[float], list[float]]:
    """Take turns with one original in this process; return µs a call."""
    import otel_ml

    statement, original, ours = ORIGINALS[name]
    theirs = hot_calls(statement, {**original(), "TEN": TEN, "STEP": itertools.count()}, turn_s)
    otel_ml.init("bench")
    mine = hot_calls(statement, {**ours(), "TEN": TEN, "STEP": itertools.count()}, turn_s)
    found = in_turns(mine, theirs, pairs, after_ours=lambda: otel_ml.flush(10))
    otel_ml.shutdown()
    return found
