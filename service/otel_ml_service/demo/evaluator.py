"""The evaluator, as a user would write it: a second role of the same run, with an axis of its own.

It takes the checkpoints that rank 0 left in a folder, oldest first. It may be killed at any time: a checkpoint is
crossed off only after `flush`, so what was under way is evaluated again by its successor, in the same place.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import otel_ml
from otel_ml_service.demo import digits
from otel_ml_service.demo.digits import montage
from otel_ml_service.demo.network import Network
from otel_ml_service.demo.settings import Settings


def evaluate(folder: Path, settings: Settings) -> None:
    """Evaluate checkpoints as they appear, until the trainers are finished and none is left."""
    network = Network(settings.hidden, settings.seed)
    data = digits.held_out_set(folder)

    with otel_ml.init("digits", role="evaluator", rank=0, world_size=1) as run:
        while (checkpoint := next_checkpoint(folder)) is not None:
            network.load(checkpoint)

            with otel_ml.step(int(checkpoint.stem.removeprefix("step-")), axis="eval"):
                with otel_ml.timed("forward"):
                    loss, accuracy = network.forward(data)
                otel_ml.log({"loss": loss, "accuracy": accuracy})
                wrong = np.flatnonzero(network.predicted != data.labels)
                otel_ml.log_image("wrong", montage(data.images[wrong]), caption=f"{len(wrong)} wrongly classified")
                otel_ml.log_table(
                    "confusions",
                    [
                        [int(i), int(data.labels[i]), int(network.predicted[i]), float(network.probabilities[i].max())]
                        for i in wrong
                    ],
                    columns=["image", "digit", "taken for", "probability"],
                )

            run.summary({"test/accuracy": accuracy, "test/loss": loss})
            # Before the checkpoint is crossed off: a successor would not evaluate it again.
            otel_ml.flush()
            checkpoint.rename(checkpoint.with_suffix(".done"))


def next_checkpoint(folder: Path) -> Path | None:
    """Wait for the oldest checkpoint not crossed off; None when there will be no more."""
    while True:
        # Asked before the folder is looked at: a last checkpoint that comes in between is not missed.
        finished = (folder / "finished").exists()
        waiting = sorted(folder.glob("step-?????.npz"))
        if waiting or finished:
            return waiting[0] if waiting else None
        time.sleep(0.02)


if __name__ == "__main__":
    evaluate(Path(sys.argv[1]), Settings(steps=int(sys.argv[2])))
