"""A script written for TensorBoard's writer; only the line of its import is another one.

    python examples/migrate/tensorboard_script.py

Expected: `train/loss` at steps 0…29, `val/acc` at epochs 0, 1, 2, `lr/encoder` and `lr/decoder`, a histogram, a figure
as an image, a text, and the hyper-parameter `lr` with its metric `final/acc`.
"""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from otel_ml.compat.tensorboard import SummaryWriter


def main() -> None:
    with SummaryWriter("runs/migrate-tensorboard") as writer:
        for step in range(30):
            writer.add_scalar("train/loss", 1 / (1 + step), step)
            if step % 10 == 9:
                epoch = step // 10
                writer.add_scalar("val/acc", (epoch + 1) / 4, epoch)
                writer.add_scalars("lr", {"encoder": 0.1, "decoder": 0.2}, step)
                writer.add_histogram("weights", np.random.default_rng(epoch).normal(size=100), step)
        figure, axes = plt.subplots()
        axes.plot([1 / (1 + step) for step in range(30)])
        writer.add_figure("curve", figure, 29)
        writer.add_text("note", "**fine**", 29)
        writer.add_hparams({"lr": 0.1}, {"final/acc": 0.75})


if __name__ == "__main__":
    main()
