"""A driver with a task, two actors, an async and a threaded one, and one that it kills.

Every value is recorded once, so sums tell what was lost or doubled.
"""

from __future__ import annotations

import asyncio

import ray

import otel_ml
from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml.wire.spool_format import read_spool
from tests.waiting import eventually

STEPS = 5


@ray.remote(num_cpus=0)
class RolloutWorker:
    def __init__(self, index: int) -> None:
        self.index = index

    def act(self, step: int) -> None:
        otel_ml.set_step(step)
        with otel_ml.timed("act"):
            otel_ml.log({"reward": float(10 * self.index + step)}, reduce=("sum", "rank"))

    def last_words(self) -> None:
        otel_ml.log({"last_words": 1.0}, step=STEPS, axis="killed", reduce="sum")


@ray.remote(num_cpus=0)
class Judge:
    async def judge(self, step: int) -> None:
        with otel_ml.step(step), otel_ml.timed("judge"):
            await asyncio.sleep(0)
            otel_ml.log({"score": float(step)}, reduce="sum")


@ray.remote(num_cpus=0, max_concurrency=2)
class Store:
    def put(self, step: int) -> None:
        otel_ml.log({"stored": 1.0}, step=step, reduce="sum")


@ray.remote(num_cpus=0.5)
def evaluate(step: int) -> None:
    otel_ml.log({"correct": float(step)}, step=step, axis="eval", reduce="sum")


def is_on_disk(metric: str, run_id: str) -> bool:
    """Whether a point of a metric is in the spool of a process of the run."""
    frames = (frame for file in rendezvous_of(run_id).spool.glob("*.spool") for frame in read_spool(file).frames)
    return any(frame.kind == "M" and metric.encode() in frame.payload for frame in frames)


def main() -> None:
    with otel_ml.init("ray", exporters="jsonl", role="driver") as run:
        otel_ml.instrument_ray()
        ray.init(num_cpus=1, include_dashboard=False)
        workers = [RolloutWorker.remote(index) for index in range(2)]
        judge, store = Judge.remote(), Store.remote()
        for step in range(STEPS):
            otel_ml.set_step(step)
            with otel_ml.timed("iteration"):
                ray.get([worker.act.remote(step) for worker in workers])
                ray.get([judge.judge.remote(step), store.put.remote(step), evaluate.remote(step)])
            otel_ml.log({"queued": float(step)})
        # It comes after the others have ranks, and sends nothing before it is killed: what it records is on its disk.
        doomed = RolloutWorker.options(runtime_env={"env_vars": {"OTEL_ML_FLUSH_INTERVAL": "60000"}}).remote(2)
        ray.get(doomed.last_words.remote())
        eventually(lambda: is_on_disk("last_words", run.id))  # a tenth of a second later, where a core is free then
        ray.kill(doomed)
        ray.shutdown()


if __name__ == "__main__":
    main()
