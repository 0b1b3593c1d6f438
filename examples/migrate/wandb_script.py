"""A script written for W&B; only the line of its import is another one.

    python examples/migrate/wandb_script.py
    torchrun --nproc-per-node 2 examples/migrate/wandb_script.py     # every rank logs; one run comes out

Expected: `train/loss` at steps 0…29, `val/acc` at epochs 0, 1, 2 of the axis `val`, `epoch`, the table `samples`, a
histogram, an image, the parameters `lr` and `epochs`, and `best` and `train/loss.min` in the summary.
"""

from __future__ import annotations

import numpy as np

from otel_ml.compat import wandb


def main() -> None:
    rng = np.random.default_rng(0)
    with wandb.init(project="migrate-wandb", name="first", config={"lr": 0.1, "epochs": 3}, tags=["demo"]) as run:
        run.define_metric("val/*", step_metric="epoch")
        run.define_metric("train/loss", summary="min")
        samples = wandb.Table(columns=["epoch", "prediction"])
        for epoch in range(run.config.epochs):
            for batch in range(10):
                run.log({"train/loss": 1 / (1 + 10 * epoch + batch)})
            samples.add_data(epoch, "seven")
            run.log({"epoch": epoch, "val/acc": (epoch + 1) / 4}, commit=False)
            run.log(
                {
                    "weights": wandb.Histogram(rng.normal(size=100)),
                    "digit": wandb.Image(rng.random((8, 8)), caption="a 7"),
                    "samples": samples,
                }
            )
        run.summary["best"] = 0.75


if __name__ == "__main__":
    main()
