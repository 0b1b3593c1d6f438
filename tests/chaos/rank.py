"""One process of the disturbed job: `python -m tests.chaos.rank FOLDER FIRST PAUSE`.

FIRST is a step, or `join` for one that takes part from where its role is. Before each step the process writes a line
`<monotonic s> <step> <longest call of the step before> <longest piece of the same length without otel_ml>` into its own
file: what a service shows must have been written there before. SIGUSR1 sets its clock an hour forward or back.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

HOUR_NS = 3_600_000_000_000

# A process that is started again is on the same machine, with the same wrong clock.
CLOCK = Path(sys.argv[1]) / f"{os.environ['OTEL_SERVICE_NAME']}-{os.environ['RANK']}.clock"
_real_ns, _shift = time.time_ns, [int(CLOCK.read_text()) if CLOCK.exists() else 0]


def jump(*_: object) -> None:
    _shift[0] = random.choice([shift for shift in (-HOUR_NS, 0, HOUR_NS) if shift != _shift[0]])
    CLOCK.write_text(str(_shift[0]))


# Before otel_ml is imported, which takes the function as it finds it.
time.time_ns = lambda: _real_ns() + _shift[0]  # type: ignore[assignment]
time.time = lambda: (_real_ns() + _shift[0]) / 1e9  # type: ignore[assignment]

import otel_ml  # noqa: E402
from tests.chaos.steps import AXES, file_of, reached_in  # noqa: E402


def main() -> None:
    folder, first, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    role, rank = os.environ["OTEL_SERVICE_NAME"], int(os.environ["RANK"])
    axis, tokens = AXES[role], 4.0**rank
    signal.signal(signal.SIGUSR1, jump)
    otel_ml.init("chaos", params={"seed": 1} if rank == 0 else None)
    step = reached_in(folder, role) + 1 if first == "join" else int(first)
    own = os.open(file_of(folder, role, rank, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    took = plain = 0.0
    while not (folder / "stop").exists():
        os.write(own, f"{time.monotonic()} {step} {took} {plain}\n".encode())
        began = time.perf_counter()
        otel_ml.set_step(step, axis=axis)
        otel_ml.log({"tokens": tokens}, reduce="sum", axis=axis)
        otel_ml.log({"loss": float(step)}, axis=axis)
        with otel_ml.timed("work"):
            pass
        took = time.perf_counter() - began
        while time.perf_counter() - began < 2 * took:  # what the machine does to code that is not ours
            plain = time.perf_counter() - began - took
        plain = max(0.0, time.perf_counter() - began - 2 * took)
        step += 1
        time.sleep(pause)
    otel_ml.shutdown()


if __name__ == "__main__":
    main()
