"""A driver whose service an actor hosts, with actors and tasks on two nodes; `RAY_ADDRESS` says where the cluster is.

In the middle the service is killed. The driver leaves without a word to its actors.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import ray

import otel_ml
from otel_ml.integrations import ray_store
from tests.waiting import eventually

STEPS = 6


@ray.remote(num_cpus=0)
class RolloutWorker:
    def __init__(self, index: int) -> None:
        self.index = index

    def act(self, step: int) -> None:
        otel_ml.set_step(step)
        otel_ml.log({"reward": float(10 * self.index + step)}, reduce=("sum", "rank"))

    def have_children_record(self) -> None:
        assert otel_ml.flush(60)  # its service is known by then
        program = "import otel_ml; otel_ml.log({'child': 1.0}, step=0, axis='child', reduce='sum')"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        forked = multiprocessing.get_context("fork").Process(target=record_in_a_fork)
        forked.start()
        forked.join(60)
        assert forked.exitcode == 0

    def runtime_folder(self) -> str:
        return os.environ.get("XDG_RUNTIME_DIR", "")


def record_in_a_fork() -> None:
    otel_ml.log({"forked": 1.0}, step=0, axis="child", reduce="sum")


@ray.remote(num_cpus=0)
def evaluate(step: int) -> None:
    otel_ml.log({"correct": float(step)}, step=step, axis="eval", reduce="sum")


def main() -> None:
    otel_ml.instrument_ray(service="actor")
    with otel_ml.init("ray", exporters="jsonl", role="driver") as run:
        ray.init()
        workers = [
            RolloutWorker.options(resources={"far": 1}).remote(0),
            RolloutWorker.options(resources={"near": 1}).remote(1),
        ]
        folders = ray.get([worker.runtime_folder.remote() for worker in workers])
        assert folders[0] != folders[1], folders
        for step in range(STEPS):
            otel_ml.set_step(step)
            ray.get([worker.act.remote(step) for worker in workers])
            ray.get(evaluate.options(resources={"far": 1}).remote(step))
            otel_ml.log({"queued": float(step)})
            if step == STEPS // 2:
                ray.get(workers[0].have_children_record.remote())
                kill_the_service(run.id)
                otel_ml.log({"after": 1.0})
                assert otel_ml.flush(60)  # there is a new one


def kill_the_service(run_id: str) -> None:
    assert otel_ml.flush(60)
    service = json.loads(eventually(lambda: ray_store.kept(f"service/{run_id}")))
    otel_ml.log({"answer": without_the_token(service["endpoint"])})
    os.kill(service["pid"], signal.SIGKILL)


def without_the_token(endpoint: str) -> int:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{endpoint}/healthz") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    main()
