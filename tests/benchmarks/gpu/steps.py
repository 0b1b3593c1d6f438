"""What recording costs whole steps of training, in turns with steps that record nothing; and that nothing is lost.

The run's sender, its service and the hardware monitor are at work all the time, on the same machine: what those use
while nothing is recorded is in both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.gpu.recorded_step import Everything, Scalars
from tests.benchmarks.gpu.shapes import Shape
from tests.benchmarks.gpu.training import blocks, training_of
from tests.gpu.devices import DEVICES

__all__ = ["steps"]

RECORDED: Mapping[str, type[Scalars]] = {"scalars_30": Scalars, "everything": Everything}
BLOCKS: Mapping[str, tuple[int, int]] = {"scalars_30": (5, 2), "everything": (10, 2)}
"""Steps that count, and that do not; of ten steps one has the norms of parameters."""


def steps(device: str, shape: Mapping[str, Any], what: str, pairs: int) -> dict[str, Any]:
    """Return seconds a step with and without, block by block; seconds in the calls; and what did not arrive."""
    import otel_ml
    from otel_ml.diagnostics import hardware

    run, where = otel_ml.init("bench"), DEVICES[device]
    with hardware.start_monitor(interval=1):
        recorded = RECORDED[what](training_of(Shape(**shape), where), where)
        counted, uncounted = BLOCKS[what]
        found = blocks(recorded.step, recorded.bare, where, pairs=pairs, steps=counted, uncounted=uncounted)
    otel_ml.shutdown()
    return {**found, "calls": recorded.taken, "lost": missing(otel_ml.read(run), recorded.number + 1)}


def missing(read: Mapping[str, tuple[list[int], list[float]]], steps_done: int) -> int:
    """Return how many of the values that each step has recorded are not in the run, or not right."""
    wrong = 0
    one = dict(zip(*read.get("m1", ([], [])), strict=True))
    for index in range(30):
        values = dict(zip(*read.get(f"m{index}", ([], [])), strict=True))
        right = (abs(values[step] - one[step] * index) <= 1e-6 * abs(values[step]) for step in values if step in one)
        wrong += steps_done - sum(right)
    return wrong
