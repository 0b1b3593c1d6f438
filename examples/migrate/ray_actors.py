"""Two rollout workers and a learner on Ray, each of which records what it does; one run comes out.

    python examples/migrate/ray_actors.py

`instrument_ray()` on the driver is all: no address, rank or id is passed to anybody, and no signature changes.
Expected: `rollout_worker/reward` (the mean of both workers) and `learner/loss` at steps 0 to 9, and the workers' timers
inside the driver's spans.
"""

from __future__ import annotations

import random

import ray

import otel_ml


@ray.remote(num_cpus=0)
class RolloutWorker:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def rollout(self, step: int) -> float:
        otel_ml.set_step(step)
        with otel_ml.timed("rollout"):
            reward = step / 10 + self.random.random() / 100
        otel_ml.log({"reward": reward})
        return reward


@ray.remote(num_cpus=0)
class Learner:
    async def learn(self, step: int, rewards: list[float]) -> None:
        with otel_ml.step(step), otel_ml.timed("learn"):
            otel_ml.log({"loss": 1 - sum(rewards) / len(rewards)})


def main() -> None:
    with otel_ml.init("ray-actors", role="driver"):
        otel_ml.instrument_ray()
        ray.init(num_cpus=1, include_dashboard=False)
        workers = [RolloutWorker.remote(seed) for seed in range(2)]
        learner = Learner.remote()
        for step in otel_ml.steps(range(10)):
            with otel_ml.timed("iteration"):
                rewards = ray.get([worker.rollout.remote(step) for worker in workers])
                ray.get(learner.learn.remote(step, rewards))
        del workers, learner  # an actor that nobody can call any more ends, and says goodbye to the run
        ray.shutdown()


if __name__ == "__main__":
    main()
