"""Two ranks of a job that a person looks at while it goes on.

    python -m tests.browser.live_job FOLDER

They do a step for each line of `FOLDER/steps`, and end when it says `end`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import otel_ml
from tests.e2e.rank import meet
from tests.waiting import eventually, whole_lines

TIMEOUT = 300.0


def train(folder: Path, rank: int) -> None:
    wanted = folder / "steps"
    with otel_ml.init("pages", name="followed", params={"learning_rate": 0.1}):
        meet(folder, "live", rank, int(os.environ["WORLD_SIZE"]))
        step = 0
        while True:
            eventually(lambda done=step: len(whole_lines(wanted)) > done, timeout=TIMEOUT)
            if whole_lines(wanted)[step] == "end":
                return
            with otel_ml.step(step), otel_ml.timed("forward"):
                otel_ml.log({"loss": 1.0 / (step + 1)})
            step += 1


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(os.environ["RANK"]))
