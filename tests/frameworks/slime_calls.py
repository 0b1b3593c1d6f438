"""The calls that slime makes of W&B's client, at 624b824: a driver begins the run, and other processes write into it.

The driver logs nothing. The process that holds the engines logs rollouts and evaluations, and the main rank of the
trainer its steps, each over a metric of its own. They name the run by its id.
"""

from __future__ import annotations

import os
import subprocess
import sys

import wandb

AS_AN_ACTOR_HAS_IT = dict(os.environ)  # before the run: an actor is no child of the driver, and knows the id alone
ROLLOUTS, STEPS_OF_A_ROLLOUT = 3, 2


def defined() -> None:
    wandb.define_metric("train/step")
    wandb.define_metric("train/*", step_metric="train/step")
    wandb.define_metric("rollout/step")
    for group in ("rollout/*", "multi_turn/*", "passrate/*"):
        wandb.define_metric(group, step_metric="rollout/step")
    wandb.define_metric("eval/step")
    wandb.define_metric("eval/*", step_metric="eval/step")
    wandb.define_metric("perf/*", step_metric="rollout/step")


def settings(*, is_first: bool) -> wandb.Settings:
    if os.environ.get("WANDB_MODE") == "offline":
        return wandb.Settings(mode="offline")
    if is_first:
        return wandb.Settings(mode="shared", x_primary=True)
    return wandb.Settings(mode="shared", x_primary=False, x_update_finish_state=False)


def driver() -> None:
    wandb.init(
        entity=None,
        project="slime",
        group="calls",
        name="calls",
        config={"lr": 1e-6, "env_vars": {}},
        settings=settings(is_first=True),
    )
    defined()
    run_id = wandb.run.id
    started = [
        subprocess.Popen([sys.executable, __file__, part, run_id], env=AS_AN_ACTOR_HAS_IT)
        for part in ("rollout", "train")
    ]
    code = max(process.wait() for process in started)
    wandb.finish()
    sys.exit(code)


def secondary(run_id: str) -> None:
    wandb.init(
        id=run_id,
        entity=None,
        project="slime",
        config={"lr": 1e-6},
        resume="allow",
        reinit=True,
        settings=settings(is_first=False),
    )
    defined()


def rollout() -> None:
    for number in range(ROLLOUTS):
        if number == 0:
            wandb.log({"eval/math": 0.1, "eval/math-truncated_ratio": 0.5, "eval/step": number})
        wandb.log({"rollout/response_len/mean": 20.0 + number, "perf/rollout_time": 2.0, "rollout/step": number})
        wandb.log({"passrate/pass@1": 0.25 * number, "multi_turn/round_mean": 1.5, "rollout/step": number})
    wandb.log({"eval/math": 0.4, "eval/math-truncated_ratio": 0.25, "eval/step": ROLLOUTS - 1})


def train() -> None:
    for number in range(ROLLOUTS):
        wandb.log({"rollout/log_probs": -1.0 - number, "rollout/raw_reward": 0.5, "rollout/step": number})
        for part in range(STEPS_OF_A_ROLLOUT):
            step = number * STEPS_OF_A_ROLLOUT + part
            wandb.log(
                {"train/loss": 1.0 / (1 + step), "train/grad_norm": 0.5, "train/lr-pg_0": 1e-6, "train/step": step}
            )
        wandb.log({"perf/train_time": 3.0 + number, "rollout/step": number})


if __name__ == "__main__":
    if len(sys.argv) == 1:
        driver()
    else:
        secondary(sys.argv[2])
        {"rollout": rollout, "train": train}[sys.argv[1]]()
        wandb.finish()
