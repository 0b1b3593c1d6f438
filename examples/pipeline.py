"""A pipeline that is cut unevenly: which stage has more work, and what evening it out saves. No rank is accused.

    python examples/pipeline.py

Four stages of two replicas each pass micro-batches forward and gradients back, GPipe's schedule, on a CPU, and all meet
at the end of a step, as for the norm by which gradients are clipped. Stage 2 has 7 layers, the others have 4. Expected:
a line that says so a few steps after the job began, the path of a report, and then what `otel-ml why` says: stage 2,
from the first step on, caused it. Its two ranks are as quick as their layers allow, all others wait for them, and none
of the eight is called slow. A few seconds on a laptop.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
import uuid
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import numpy as np

import otel_ml

LAYERS, REPLICAS = (4, 4, 7, 4), 2
STEPS, MICRO_BATCHES, WIDTH, LAYER_S = 60, 4, 32, 0.0005
STAGES, RANKS = len(LAYERS), len(LAYERS) * REPLICAS


class Stage:
    """A part of the model: layers, and connections to the stages before and after."""

    def __init__(self, rank: int, before: Connection | None, after: Connection | None) -> None:
        self.number, self.replica = divmod(rank, REPLICAS)
        self.before, self.after = before, after
        rng = np.random.default_rng(self.number)
        self.layers = [rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(LAYERS[self.number])]

    def forward(self, batch: np.ndarray) -> None:
        if self.before is not None:
            with otel_ml.timed("forward-recv"):
                batch = self.before.recv()
        with otel_ml.timed("forward-compute"):
            for layer in self.layers:
                batch = np.tanh(batch @ layer)
                time.sleep(LAYER_S)  # stands for a layer that is worth a pipeline
        if self.after is not None:
            with otel_ml.timed("forward-send"):
                self.after.send(batch)

    def backward(self) -> None:
        gradient = np.ones((8, WIDTH))
        if self.after is not None:
            with otel_ml.timed("backward-recv"):
                gradient = self.after.recv()
        with otel_ml.timed("backward-compute"):
            for layer in reversed(self.layers):
                gradient = gradient @ layer.T
                time.sleep(2 * LAYER_S)
        if self.before is not None:
            with otel_ml.timed("backward-send"):
                self.before.send(gradient)


def train(rank: int, run_id: str, together: Barrier, before: Connection | None, after: Connection | None) -> None:
    stage, rng = Stage(rank, before, after), np.random.default_rng(rank)
    topology = {"pp": (stage.number, STAGES), "dp": (stage.replica, REPLICAS)}
    params = {"layers": list(LAYERS), "micro_batches": MICRO_BATCHES}
    with otel_ml.init("pipeline", id=run_id, rank=rank, world_size=RANKS, topology=topology, params=params):
        otel_ml.flush(30.0)  # this job takes seconds: without it, it could be over before its service is up
        for _ in otel_ml.steps(range(STEPS)):
            for _ in range(MICRO_BATCHES):
                stage.forward(rng.normal(size=(8, WIDTH)))
            for _ in range(MICRO_BATCHES):
                stage.backward()
            with otel_ml.timed("grads-all-reduce"):
                together.wait(60.0)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    run_id = f"pipeline-{uuid.uuid4().hex[:8]}"
    pipes = {(stage, replica): context.Pipe() for stage in range(STAGES - 1) for replica in range(REPLICAS)}
    together = context.Barrier(RANKS)
    ranks = []
    for rank in range(RANKS):
        stage, replica = divmod(rank, REPLICAS)
        before, after = pipes.get((stage - 1, replica)), pipes.get((stage, replica))
        ends = (None if before is None else before[1], None if after is None else after[0])
        ranks.append(context.Process(target=train, args=(rank, run_id, together, *ends)))
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    for command in ("report", "why"):
        subprocess.run([sys.executable, "-m", "otel_ml_service", command, run_id], check=True)


if __name__ == "__main__":
    main()
