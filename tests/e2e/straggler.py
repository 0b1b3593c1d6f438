"""A rank that is two seconds late at one step, if it is rank 1: `python -m tests.e2e.straggler FOLDER`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import otel_ml
from tests.e2e.rank import meet

STEPS, LATE_AT, LATE_S = 10, 5, 2.0


def main() -> None:
    with otel_ml.init("straggler"):
        meet(Path(sys.argv[1]), "straggler", int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        for step in otel_ml.steps(range(STEPS)):
            if step == LATE_AT and os.environ["RANK"] == "1":
                time.sleep(LATE_S)  # the straggler
            otel_ml.log({"ranks": 1}, reduce="sum")


if __name__ == "__main__":
    main()
