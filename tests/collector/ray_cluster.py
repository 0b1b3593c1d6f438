"""A Ray cluster of one node that works until stdin closes: `python -m tests.collector.ray_cluster FOLDER`."""

from __future__ import annotations

import sys

import ray


@ray.remote
def square(number: int) -> int:
    return number * number


def main() -> None:
    ray.init(num_cpus=1, _temp_dir=sys.argv[1], include_dashboard=True, log_to_driver=False)
    print("ready", flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
