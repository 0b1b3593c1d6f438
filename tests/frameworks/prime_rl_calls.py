"""The calls that prime-rl makes of W&B's client, at 559b447, where it writes one run from several processes.

Its trainer logs five rows a step, all of which name that step; its orchestrator logs one a step, and beside them what
is drawn over the time of day. Each is a process of its own, and both are one run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import wandb

STEPS = 4


def begin() -> None:
    """As a monitor begins."""
    shared = os.environ.get("WANDB_MODE") != "offline"
    label = os.environ["OF_THE_PROCESS"]
    is_first = label == "orchestrator"
    settings = (
        wandb.Settings(mode="shared", x_label=label, x_primary=is_first, x_update_finish_state=is_first)
        if shared
        else wandb.Settings(mode="offline")
    )
    run_id = os.environ["WANDB_RUN_ID"] if shared else None
    wandb.init(
        id=run_id,
        resume="allow" if run_id else None,
        project="prime-rl",
        entity=None,
        name="calls",
        group=None,
        tags=[],
        dir=None,
        config={label: {"lr": 0.1}},
        settings=settings,
    )
    wandb.define_metric("*", step_metric="step")


def trainer() -> None:
    begin()
    for step in range(STEPS):
        for metrics in (
            {"perf/throughput": 100.0 + step},
            {"optim/lr": 0.1, "optim/grad_norm": 1.0 / (1 + step)},
            {"loss/mean": 2.0 - step, "entropy/mean": 0.5},
            {"time/step": 3.0 + step},
            {"system/disk_free": 50.0 - step},
        ):
            wandb.log({**metrics, "step": step})
    wandb.finish(exit_code=0)
    wandb.finish()


def orchestrator() -> None:
    begin()
    wandb.define_metric("dispatcher/inflight", step_metric="_timestamp")
    wandb.define_metric("inference/*", step_metric="_timestamp")
    for step in range(STEPS):
        wandb.log({"dispatcher/inflight": 7.0 + step, "_timestamp": time.time()})
        wandb.log({"inference/agg/queue/mean": 3.0 + step, "_timestamp": time.time()})
        wandb.log({"train/agg/reward/mean": 0.1 * step, "progress/tokens": 64.0 * (1 + step), "step": step})
        if step % 2 == 0:
            wandb.log({"eval/math/avg@1": 0.25 * step, "step": step})
    wandb.finish(exit_code=0)
    wandb.finish()


def launch() -> None:
    roles = ("orchestrator", "trainer")
    started = [
        subprocess.Popen([sys.executable, __file__, role], env={**os.environ, "OF_THE_PROCESS": role}) for role in roles
    ]
    sys.exit(max(process.wait() for process in started))


if __name__ == "__main__":
    {"trainer": trainer, "orchestrator": orchestrator}.get("".join(sys.argv[1:]), launch)()
