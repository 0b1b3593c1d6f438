"""SkyRL's `Tracking("wandb")`, called as its trainers call it, around a policy of one layer.

    python examples/migrate/skyrl_tracking.py

It needs `pip install skyrl==0.3.0`. The lines with `# otel_ml` are all that otel_ml needs.

Expected: `eval/avg_score` at the steps 0, 2, 4, 6, the metrics and timings of SkyRL at the steps 1 to 6, the table
`trajectories/train` at each of them, which grows by two rows a step, and `my/reward`, which a reward function records.
"""

from __future__ import annotations

import sys  # otel_ml

import torch
from skyrl.train.utils import Timer
from skyrl.train.utils.tracking import Tracking

import otel_ml  # otel_ml
from otel_ml.compat import wandb  # otel_ml

STEPS, PROMPTS, COLUMNS = 6, 8, ["step", "reward", "num_turns", "trajectory"]


def rewards_of(actions: torch.Tensor) -> torch.Tensor:
    """Like the last of four actions."""
    rewards = (actions == 3).float()
    otel_ml.log({"my/reward": rewards.tolist()})  # otel_ml
    return rewards


class Trainer:
    """Keeps metrics and timings as SkyRL's trainers do, and gives them to the tracker."""

    def __init__(self, tracker: Tracking) -> None:
        self.tracker = tracker
        self.global_step = 0
        self.all_metrics: dict[str, float] = {}
        self.all_timings: dict[str, float] = {}
        self.policy = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), 0.1)
        self.states = torch.randn(PROMPTS, 4)

    def eval(self) -> dict[str, float]:
        best = self.policy(self.states).argmax(dim=1)
        return {"eval/avg_score": float((best == 3).float().mean()), "eval/all/pass_at_1": 0.5}

    def step(self) -> None:
        with Timer("step", self.all_timings):
            with Timer("generate", self.all_timings):
                policy = torch.distributions.Categorical(logits=self.policy(self.states))
                actions = policy.sample()
            rewards = rewards_of(actions)
            self.tracker.log_samples_to_table(
                key="trajectories/train",
                columns=COLUMNS,
                samples=[
                    (self.global_step, float(reward), 1, f"did {int(action)}")
                    for reward, action in zip(rewards[:2], actions[:2], strict=True)
                ],
                step=self.global_step,
            )
            with Timer("train_critic_and_policy", self.all_timings):
                loss = -((rewards - rewards.mean()) * policy.log_prob(actions)).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        self.all_metrics.update({"reward/avg_raw_reward": float(rewards.mean()), "policy/loss": float(loss.detach())})
        self.all_metrics.update({"trainer/epoch": 0, "trainer/global_step": self.global_step})

    def train(self) -> None:
        self.tracker.log(self.eval(), step=self.global_step, commit=True)
        for self.global_step in range(1, STEPS + 1):
            otel_ml.set_step(self.global_step)  # otel_ml
            self.step()
            if self.global_step % 2:  # as its trainer for synchronous training does
                self.log(self.all_metrics | self.timings(), commit=True)
            else:  # as the one for asynchronous training does
                self.log(self.all_metrics, commit=False)
                self.all_metrics = self.eval()
                self.log(self.all_metrics, commit=False)
                self.log(self.timings(), commit=True)
            self.all_metrics, self.all_timings = {}, {}

    def timings(self) -> dict[str, float]:
        return {f"timing/{name}": seconds for name, seconds in self.all_timings.items()}

    def log(self, metrics: dict[str, float], *, commit: bool) -> None:
        self.tracker.log(metrics, step=self.global_step, commit=commit)


def main() -> None:
    sys.modules["wandb"] = wandb  # otel_ml
    torch.manual_seed(0)
    config = {"trainer": {"epochs": 1, "policy": {"optimizer_config": {"lr": 0.1}}, "logger": "wandb"}}
    tracker = Tracking("migrate-skyrl", "one-layer", backend="wandb", config=config, tags=["cpu"])
    try:
        Trainer(tracker).train()
    except Exception as error:
        tracker.log_exception(error, step=STEPS)
        raise
    tracker.finish()


if __name__ == "__main__":
    main()
