"""What recording leaves to the interpreter's garbage collector, which stops every thread of the process."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers.timing import timed
from tests.unit.otel_ml.record.conftest import Recorded

STEPS, STEPS_A_LOOK = 400, 8
"""As many as fill the youngest generation 50 times with one object for each value."""


@contextmanager
def collections_counted() -> Iterator[list[int]]:
    """Give the generations that are looked through meanwhile."""
    generations: list[int] = []

    def note(phase: str, found: Mapping[str, int]) -> None:
        if phase == "start":
            generations.append(found["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        yield generations
    finally:
        gc.callbacks.remove(note)


def a_step(step: int, names: list[str]) -> None:
    set_step(step)
    for name in names[:20]:
        with timed(name):
            pass
    log({name: float(step) for name in names})


def test_recording_gives_the_garbage_collector_next_to_nothing_to_do(recorded: Recorded) -> None:
    # A whole collection takes 0.1 s in a process that has imported torch, and longer in one with a dataset in memory.
    # It comes the sooner the more containers live on for a while: one list a value brought one every 90 s.
    names = [f"metric/{number}" for number in range(100)]
    for step in range(STEPS_A_LOOK):  # definitions are made once
        a_step(step, names)
    recorded.collect()

    with collections_counted() as generations:
        for step in range(STEPS_A_LOOK, STEPS):
            a_step(step, names)
            if step % STEPS_A_LOOK == 0:
                recorded.collect()

    assert len(generations) <= 5
