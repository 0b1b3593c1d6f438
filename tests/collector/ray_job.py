"""A Ray job as the deployment guide shows it, on a cluster of one node, until stdin closes.

python -m tests.collector.ray_job FOLDER
"""

from __future__ import annotations

import functools
import sys

import ray

import otel_ml


@ray.remote
class Generator:
    def __init__(self) -> None:
        otel_ml.init(role="generator")

    def generate(self, step: int) -> None:
        otel_ml.log({"tokens": 100 * step}, step=step)

    def end(self) -> None:
        otel_ml.shutdown()


def main() -> None:
    # Where the endpoints are listed, and no more processes than the page's example has.
    ray.init = functools.partial(ray.init, num_cpus=1, _temp_dir=sys.argv[1], include_dashboard=True)
    otel_ml.init("ray-job", role="driver")
    ray.init(runtime_env={"env_vars": otel_ml.child_env()})
    generator = Generator.remote()
    for step in range(5):
        otel_ml.set_step(step)  # from here on its heartbeat says that the job lives
        otel_ml.log({"queued": step})
        ray.get(generator.generate.remote(step))
    ray.get(generator.end.remote())
    sys.stdin.read()
    otel_ml.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
