"""What steps that are open take of the service's memory: of its decoder and its engine, without the rest.

Requests of simulated ranks are decoded and observed in this process, and `tracemalloc` counts what stays.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable, Sequence

from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.receiver.decode import Decoder
from tests.benchmarks.sources import Own

__all__ = ["open_step_bytes"]

EXPERIMENT = "bench"
BEGAN = 1_700_000_000.0
SETTLED = 3
"""Steps that close before anything is counted: forms are learned."""


class Job:
    """Simulated ranks, and what follows them; a step takes a second."""

    def __init__(self, ranks: int, metrics: int) -> None:
        self._own = Own(EXPERIMENT, ranks, range(ranks), metrics=metrics)
        self._decoder, self._engine = Decoder(), Engine(EXPERIMENT, kept=lambda key: None)

    def send(self, steps: Iterable[int], ranks: range) -> None:
        """Take these steps of these ranks, and commit after each."""
        for step in steps:
            now = BEGAN + step
            for rank in ranks:
                for _, body in self._own.requests(step, rank):
                    for observation in self._decoder.protobuf("metrics", body).observations[EXPERIMENT]:
                        self._engine.observe(observation, now)
            self._engine.advance(now)
            self._engine.take()


def open_step_bytes(metrics: Sequence[int], ranks: int, steps: int) -> list[tuple[float, float]]:
    """Return bytes a rank and open step, by metrics a step: all ranks but the first have sent so many steps."""
    return [(each, _of_open_steps(ranks, each, steps)) for each in metrics]


def _of_open_steps(ranks: int, metrics: int, steps: int) -> float:
    job, ahead = Job(ranks, metrics), range(1, ranks)
    job.send(range(SETTLED), range(ranks))
    tracemalloc.start()
    try:
        job.send(range(SETTLED, SETTLED + steps), ahead)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held / (len(ahead) * steps)
