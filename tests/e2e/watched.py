"""One rank of a job whose rank 1 becomes slow, and on whose rank 0 a callback raises first and hangs then.

    python -m tests.e2e.watched FOLDER

Prints what the callback was called with, and `trained` when the loop is over. Rank 0 goes on from two of its steps only
when it was told: how far the service is behind the job depends on the machine.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import otel_ml
from otel_ml.diagnostics import findings
from tests.e2e.rank import meet

STEPS, SLOW_FROM, SLOW_TO = 240, 40, 100

TOLD = {is_over: threading.Event() for is_over in (False, True)}
TOLD_BY = {SLOW_TO - 10: TOLD[False], STEPS - 20: TOLD[True]}
"""Step of rank 0 → what it has been told by then."""
TIMEOUT_S = 60.0


def broken(finding: findings.Finding) -> None:
    if finding.rank != 1:
        return  # the machine is busy: whoever else was slow for a while is true, and not what is tested
    print(f"told rank {finding.rank} {finding.phase} {finding.is_over}", flush=True)
    TOLD[finding.is_over].set()
    if finding.is_over:
        threading.Event().wait()
    raise RuntimeError("a callback's mistake")


def main() -> None:
    rank = int(os.environ["RANK"])
    with otel_ml.init("watched"):
        otel_ml.event("begins")
        otel_ml.flush(30.0)  # the service is up
        meet(Path(sys.argv[1]), "watched", rank, int(os.environ["WORLD_SIZE"]))
        watch = findings.watch(broken, every_s=0.1) if rank == 0 else None
        for step in otel_ml.steps(range(STEPS)):
            if rank == 0 and step in TOLD_BY:
                TOLD_BY[step].wait(TIMEOUT_S)
            with otel_ml.timed("work"):
                time.sleep(0.02 + (0.03 if rank == 1 and SLOW_FROM <= step < SLOW_TO else 0.0))
            otel_ml.log({"done": 1.0}, reduce="sum")
        print("trained", flush=True)
        if watch is not None:
            otel_ml.flush()
            watch.stop()


if __name__ == "__main__":
    main()
