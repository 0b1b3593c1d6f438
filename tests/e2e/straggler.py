"""A rank that is two seconds late at one step, if it is rank 1: `python -m tests.e2e.straggler`."""

from __future__ import annotations

import os
import time

import otel_ml

STEPS, LATE_AT, LATE_S = 10, 5, 2.0


def main() -> None:
    with otel_ml.init("straggler"):
        for step in otel_ml.steps(range(STEPS)):
            if step == LATE_AT and os.environ["RANK"] == "1":
                time.sleep(LATE_S)
            otel_ml.log({"ranks": 1}, reduce="sum")


if __name__ == "__main__":
    main()
