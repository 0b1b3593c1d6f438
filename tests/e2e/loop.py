"""A training loop for the tests of what happens around it: `python -m tests.e2e.loop STEPS [SECONDS A STEP]`.

Prints `step <i>` for each step, and at the end the longest time that the calls of one step took, in seconds: without
that in which the machine gave this process no core.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import otel_ml
from tests.chaos.stalls import Watch, stalls_in


def main() -> None:
    steps, pause = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    stalls = Path(f"{os.getpid()}.stalls")
    watch = Watch(stalls)
    with otel_ml.init("loop"):
        for step in range(steps):
            with watch:
                otel_ml.set_step(step)
                otel_ml.log({"loss": float(step)})
                otel_ml.log({"tokens": 1}, reduce="sum")
            print("step", step, flush=True)
            time.sleep(pause)
    longest_ms = max((stall.surely_own_ms for stall in stalls_in(stalls)), default=0.0)
    print("longest", longest_ms / 1e3, flush=True)


if __name__ == "__main__":
    main()
