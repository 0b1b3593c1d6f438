"""torchforge's loop: a controller that flushes, and an actor that knows neither run nor step; only the import is new.

    python examples/migrate/forge_actor.py

Expected: `rl_trainer/loss` and the tracer's durations at steps 0 to 9, `generator/tokens` of the actor (summed) in the
same rows, and a table `rollouts` with the best and the worst episode of each step.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

from otel_ml.compat.forge import (
    Reduce,
    child_env,
    get_or_create_metric_logger,
    record_episode_sample,
    record_metric,
    trace,
)

ACTOR = """
import sys
from otel_ml.compat.forge import Reduce, record_metric

for line in sys.stdin:
    record_metric("generator/tokens", int(line), Reduce.SUM)
"""


async def main() -> None:
    logger = await get_or_create_metric_logger(process_name="Controller")
    await logger.init_backends.call_one({"tensorboard": {"logging_mode": "global_reduce"}})
    environment = {**os.environ, **child_env()}
    with subprocess.Popen([sys.executable, "-c", ACTOR], env=environment, stdin=subprocess.PIPE, text=True) as actor:
        for step in range(10):
            print(128, file=actor.stdin, flush=True)
            with trace("rl_trainer") as tracer:
                record_metric("rl_trainer/loss", 1 / (1 + step), Reduce.MEAN)
                tracer.step("forward")
            for episode in range(4):
                record_episode_sample("rollouts", {"reward": episode / 4, "response": f"answer {episode}"})
            await logger.flush.call_one(step)
        actor.stdin.close()
    await logger.shutdown.call_one()


if __name__ == "__main__":
    asyncio.run(main())
