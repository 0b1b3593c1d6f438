"""Go on with the same run after the machine was taken away: the id is in the checkpoint.

    python examples/resume_after_preemption.py --preempt-at 70     # ends as a preempted machine does
    python examples/resume_after_preemption.py                     # goes on from the checkpoint of step 50

Expected: ONE run with `loss` at the steps 0…99. The steps 50…69 were done twice: the values are those of the second
attempt, and `otel_ml/steps_redone` counts them.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import otel_ml

STEPS, SAVE_EVERY = 100, 25


def loss_at(step: int, attempt: int) -> float:
    return 1 / (1 + step) + 10 * attempt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.json"))
    parser.add_argument("--preempt-at", type=int)
    arguments = parser.parse_args()

    saved = json.loads(arguments.checkpoint.read_text()) if arguments.checkpoint.exists() else {"step": 0, "lives": 0}
    with otel_ml.init("resume", id=saved.get("run")) as run:
        for step in range(saved["step"], STEPS):
            if step % SAVE_EVERY == 0:
                otel_ml.flush()  # nothing that the checkpoint stands for is only in this process
                state = {"run": run.id, "step": step, "lives": saved["lives"] + 1}
                arguments.checkpoint.write_text(json.dumps(state))
            if step == arguments.preempt_at:
                os._exit(1)  # no goodbye, no flush
            otel_ml.set_step(step)
            otel_ml.log({"loss": loss_at(step, saved["lives"])})


if __name__ == "__main__":
    main()
