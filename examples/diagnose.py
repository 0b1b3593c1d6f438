"""Which rank is slow, in which phase, since when, and what it costs: found while the job runs, without a collective.

    python examples/diagnose.py

Four processes train one classifier together; from step 80 to 149 rank 2 takes 15 ms longer in `forward`.
Expected: a line when that is found, a few steps later, and one when it is over; the path of a report, one HTML file
with the curves, the timers, the finding and a picture of all ranks; then what `otel-ml why` says: rank 2, in `forward`,
caused it, and what it cost. A few seconds on a laptop.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
import uuid
from multiprocessing.synchronize import Barrier

import numpy as np

import otel_ml
from otel_ml.diagnostics import findings

RANKS, STEPS, FEATURES = 4, 240, 64
SLOW_RANK, SLOW_STEPS, SLOW_S = 2, range(80, 150), 0.015


class Averaging:
    """The job's own all-reduce: shared memory and a barrier. otel_ml has no part in it."""

    def __init__(self, context: multiprocessing.context.SpawnContext) -> None:
        self._shared = context.Array("d", RANKS * FEATURES, lock=False)
        self._barrier: Barrier = context.Barrier(RANKS)

    def mean(self, rank: int, gradient: np.ndarray) -> np.ndarray:
        everyone = np.frombuffer(self._shared).reshape(RANKS, FEATURES)
        everyone[rank] = gradient
        self._barrier.wait(60)
        mean = everyone.mean(axis=0)
        self._barrier.wait(60)
        return mean


def told(finding: findings.Finding) -> None:
    what = f"{finding.place} in {finding.phase or 'everything'}, step {finding.since}"
    if finding.is_over:
        print(f"over: {what} to {finding.last}, it cost {finding.cost_s:.2f} s", flush=True)
    else:
        print(f"{finding.kind} ({finding.level}): {what}, {finding.extra_s * 1e3:.0f} ms a step", flush=True)


def train(rank: int, run_id: str, averaging: Averaging) -> None:
    rng = np.random.default_rng(rank)
    truth, weights = np.random.default_rng(99).normal(size=FEATURES), np.zeros(FEATURES)
    with otel_ml.init("diagnose", id=run_id, rank=rank, world_size=RANKS, params={"lr": 0.5}):
        otel_ml.flush(30.0)  # this job takes seconds: without it, it could be over before its service is up
        watch = findings.watch(told, every_s=0.2) if rank == 0 else None
        for step in otel_ml.steps(range(STEPS)):
            with otel_ml.timed("data"):
                batch = rng.normal(size=(256, FEATURES))
                labels = (batch @ truth > 0).astype(float)
            with otel_ml.timed("forward"):
                time.sleep(0.005 + (SLOW_S if rank == SLOW_RANK and step in SLOW_STEPS else 0.0))
                probability = 1 / (1 + np.exp(-batch @ weights))
            with otel_ml.timed("backward"):
                gradient = batch.T @ (probability - labels) / len(labels)
            with otel_ml.timed("all_reduce"):
                gradient = averaging.mean(rank, gradient)
            weights -= 0.5 * gradient
            otel_ml.log({"accuracy": np.mean((probability > 0.5) == labels)})
        if watch is not None:
            otel_ml.flush()
            watch.stop()


def main() -> None:
    context = multiprocessing.get_context("spawn")
    averaging, run_id = Averaging(context), f"diagnose-{uuid.uuid4().hex[:8]}"
    ranks = [context.Process(target=train, args=(rank, run_id, averaging)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    for command in ("report", "why"):
        subprocess.run([sys.executable, "-m", "otel_ml_service", command, run_id], check=True)


if __name__ == "__main__":
    main()
