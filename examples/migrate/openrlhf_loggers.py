"""OpenRLHF's `WandbLogger` and `TensorboardLogger`, called as its trainer for PPO calls them.

    python examples/migrate/openrlhf_loggers.py

It needs `pip install openrlhf==0.11.2`. The lines with `# otel_ml` are all that otel_ml needs.

Expected: `train/policy_loss` at the global steps 1 to 6, the table `train/generated_samples`, which grows by a row a
step, `eval/pass_at_1`, and `my/reward`, which a reward function records.
"""

from __future__ import annotations

import sys  # otel_ml
from argparse import Namespace
from typing import Any

import torch
from openrlhf.utils.logging_utils import TensorboardLogger, WandbLogger

import otel_ml  # otel_ml
from otel_ml.compat import wandb  # otel_ml

STEPS, PROMPTS = 6, 8


def reward_of(actions: torch.Tensor) -> torch.Tensor:
    """Like the last of four actions."""
    rewards = (actions == 3).float()
    otel_ml.log({"my/reward": rewards.tolist()})  # otel_ml
    return rewards


def arguments() -> Namespace:
    tracker = Namespace(
        key="no-key-of-a-server", org=None, project="migrate-openrlhf", group="ppo", run_name="one-layer"
    )
    return Namespace(
        logger=Namespace(wandb=tracker, tensorboard_dir="outputs", logging_steps=1),
        actor=Namespace(learning_rate=0.1),
    )


def main() -> None:
    sys.modules["wandb"] = wandb  # otel_ml
    args = arguments()
    loggers: list[Any] = [WandbLogger(args), TensorboardLogger(args)]
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 4)
    optimizer = torch.optim.Adam(policy.parameters(), args.actor.learning_rate)
    states = torch.randn(PROMPTS, 4)
    for step in range(1, STEPS + 1):
        otel_ml.set_step(step)  # otel_ml
        distribution = torch.distributions.Categorical(logits=policy(states))
        actions = distribution.sample()
        rewards = reward_of(actions)
        loss = -((rewards - rewards.mean()) * distribution.log_prob(actions)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        status = {
            "policy_loss": float(loss.detach()),
            "reward": float(rewards.mean()),
            "kl": None,
            "actor_lr": args.actor.learning_rate,
            "generated_samples": [f"did {int(actions[0])}", float(rewards[0])],
        }
        for logger in loggers:
            logger.log_train(step, status)
        if step % 3 == 0:
            best = policy(states).argmax(dim=1)
            for logger in loggers:
                logger.log_eval(step, {"pass_at_1": float((best == 3).float().mean()), "acc_std": None})
    for logger in loggers:
        logger.close()


if __name__ == "__main__":
    main()
