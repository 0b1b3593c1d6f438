"""One rank of a small job that records one of everything a page can show.

    python -m tests.browser.job FOLDER

At the last step the loss of rank r is 0.1234 + r / 2.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import otel_ml
from tests.e2e.rank import meet

STEPS = 40
HOSTILE = "<script>document.title = 'broken'</script>"
ROWS = [[3, 5, "*not* emphasised <b>nor bold</b>"], [7, 1, HOSTILE]]


def loss_at(step: int, rank: int) -> float:
    return 0.1234 + 0.5 * rank + (STEPS - 1 - step) / 10


def train(folder: Path, rank: int) -> None:
    params = {"learning_rate": 0.1, "model": {"width": 128, "name": "small"}, "prompt": HOSTILE}
    with otel_ml.init("pages", name="looked-at", params=params, notes="What a person looks at.") as run:
        meet(folder, "pages", rank, int(os.environ["WORLD_SIZE"]))
        for step in otel_ml.steps(range(STEPS)):
            with otel_ml.timed("forward"):
                otel_ml.log({"loss": loss_at(step, rank)}, reduce=("mean", "min", "max"))
            otel_ml.log({"tokens": 512}, reduce="sum")
            if step % 10 == 9 and rank == 0:
                otel_ml.log({"accuracy": 0.5 + step / 100}, step=step, axis="eval")
                otel_ml.log_image("digit", picture(step), caption=f"at step {step}")
                otel_ml.log_histogram("weights", np.linspace(-1, 1, 100) ** 3)
        if rank == 0:
            otel_ml.log_text("sample", f"a *generated* text, with {HOSTILE}")
            otel_ml.log_table("confusions", ROWS, columns=["digit", "taken for", HOSTILE])
            notes = folder / "notes.md"
            notes.write_text("# What was done\n")
            otel_ml.log_artifact(notes, name="notes", type="text")
            run.summary({"final/accuracy": 0.89})


def picture(step: int) -> np.ndarray:
    row = np.tile(np.linspace(0, 255, 32), (32, 1))
    return np.stack([row, row.T, np.full_like(row, step * 6)], axis=-1).astype(np.uint8)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(os.environ["RANK"]))
