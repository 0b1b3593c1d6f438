"""A training loop for the tests of what happens around it: `python -m tests.e2e.loop STEPS [SECONDS A STEP]`.

Prints `step <i>` for each step, and at the end the longest time that one call of otel_ml took, in seconds.
"""

from __future__ import annotations

import sys
import time

import otel_ml


def main() -> None:
    steps, pause = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    longest = 0.0
    with otel_ml.init("loop"):
        for step in range(steps):
            began = time.perf_counter()
            otel_ml.set_step(step)
            otel_ml.log({"loss": float(step)})
            otel_ml.log({"tokens": 1}, reduce="sum")
            longest = max(longest, time.perf_counter() - began)
            print("step", step, flush=True)
            time.sleep(pause)
    print("longest", longest, flush=True)


if __name__ == "__main__":
    main()
