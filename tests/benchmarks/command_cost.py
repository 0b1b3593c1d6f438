"""What a command costs: seconds from its start to its end, and the most memory that it had.

A process of its own, and small: Linux counts the memory of who starts a program as the program's.
`python -m tests.benchmarks.command_cost COMMAND…` prints a line of JSON.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Cost", "cost_of"]


@dataclass(frozen=True)
class Cost:
    """Of one command; the memory is in MB."""

    seconds: float
    memory: float


def cost_of(command: Sequence[object], env: dict[str, str]) -> Cost:
    """Run a command, and return what it took.

    Raises:
        RuntimeError: it failed.
    """
    asked = [sys.executable, "-m", "tests.benchmarks.command_cost", *map(str, command)]
    done = subprocess.run(asked, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} failed with status {done.returncode}:\n{done.stderr}")
    return Cost(**json.loads(done.stdout))


def _run(command: Sequence[str]) -> int:
    began = time.perf_counter()
    status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 10**6
    print(json.dumps({"seconds": seconds, "memory": memory}))
    return status


if __name__ == "__main__":
    sys.exit(_run(sys.argv[1:]))
