"""One rank of the training, as a user would write it. `launch` starts four of these, as torchrun would."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

import otel_ml
from otel_ml_service.demo import digits
from otel_ml_service.demo.averaging import Averaging
from otel_ml_service.demo.disturbance import slow_down
from otel_ml_service.demo.network import Network
from otel_ml_service.demo.settings import Settings


def train(folder: Path, rank: int, world_size: int, settings: Settings) -> None:
    """Train the network on this rank's share of every batch; rank 0 saves checkpoints into `folder`."""
    network = Network(settings.hidden, settings.seed)
    loader = digits.batches(
        digits.training_set(folder),
        rank=rank,
        world_size=world_size,
        batch_size=settings.batch_size,
        steps=settings.steps,
        seed=settings.seed,
    )

    with (
        Averaging(folder, rank, world_size) as averaging,
        otel_ml.init("digits", params={"ranks": world_size, **asdict(settings)}) as run,
    ):
        # Of every timer: the slowest rank's time, the mean over ranks, and who was the slowest.
        otel_ml.define_metric("time/*", within="sum", reduce=("max", "mean", "argmax"))
        if rank == 0:
            otel_ml.log_text("dataset", digits.DESCRIPTION)

        for step, batch in enumerate(otel_ml.steps(loader)):  # records time/step and time/data
            with otel_ml.timed("forward"):
                loss, accuracy = network.forward(batch)
                slow_down(rank, step)
            with otel_ml.timed("backward"):
                gradient = network.backward()
            with otel_ml.timed("sync"):
                mean_gradient = averaging.mean(gradient)
            with otel_ml.timed("optimizer"):
                learning_rate = settings.learning_rate_at(step)
                network.update(mean_gradient, learning_rate, settings.momentum)

            otel_ml.log({"loss": loss, "accuracy": accuracy}, reduce=("mean", "min", "max"))
            otel_ml.log({"grad_norm": np.linalg.norm(gradient)})
            otel_ml.log({"samples": len(batch.labels)}, reduce="sum")

            if rank == 0:
                otel_ml.log({"learning_rate": learning_rate})
                if (step + 1) % settings.evaluate_every == 0:
                    network.save(folder / f"step-{step:05d}.npz")

        if rank == 0:
            network.save(folder / "model.npz")
            otel_ml.log_checkpoint(folder / "model.npz", step=step, aliases=["latest"])
            run.summary({"train/accuracy": accuracy})


if __name__ == "__main__":
    import os

    train(Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), Settings(steps=int(sys.argv[2])))
