"""A framework that calls W&B's client in its own files, which nobody changes: two lines before it is imported.

    python examples/migrate/framework_writer.py

Expected: `train/loss` at steps 0…9, `rollout/reward` at rollouts 0, 1, 2 of the axis `rollout`, the parameter `lr`.
"""

from __future__ import annotations

import sys
from typing import Any

from otel_ml.compat import wandb

sys.modules["wandb"] = wandb


class Writer:
    """As frameworks have one: it imports W&B where it is made, and is called on one rank."""

    def __init__(self, config: dict[str, Any]) -> None:
        import wandb

        self.wandb = wandb
        wandb.init(project="migrate-framework", config=config)
        wandb.define_metric("rollout/*", step_metric="rollout/step")

    def train(self, step: int, loss: float) -> None:
        self.wandb.log({"train/loss": loss}, step=step)

    def rollout(self, number: int, reward: float) -> None:
        self.wandb.log({"rollout/step": number, "rollout/reward": reward})

    def close(self) -> None:
        self.wandb.finish()


def main() -> None:
    writer = Writer({"lr": 0.1})
    for step in range(10):
        writer.train(step, 1 / (1 + step))
        if step % 4 == 0:
            writer.rollout(step // 4, step / 10)
    writer.close()


if __name__ == "__main__":
    main()
