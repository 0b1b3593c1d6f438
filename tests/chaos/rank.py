"""One process of the disturbed job: `python -m tests.chaos.rank FOLDER FIRST PAUSE`.

FIRST is a step, or `join` for one that takes part from where its role is. Before and after each step the process writes
a line into its own file (`tests.chaos.steps`): what a service shows must have been written there before. SIGUSR1 sets
its clock an hour forward or back.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

HOUR_NS = 3_600_000_000_000

# A process that is started again is on the same machine, with the same wrong clock.
CLOCK = Path(sys.argv[1]) / f"{os.environ['OTEL_SERVICE_NAME']}-{os.environ['RANK']}.clock"
_real, _real_ns, _shift = time.time, time.time_ns, [int(CLOCK.read_text()) if CLOCK.exists() else 0]


_AHEAD = {0: HOUR_NS, HOUR_NS: -HOUR_NS, -HOUR_NS: 0}
_BEHIND = {after: before for before, after in _AHEAD.items()}
_NEXT = _BEHIND if int(os.environ["RANK"]) % 2 else _AHEAD


def jump(*_: object) -> None:
    """Set the clock forward first, of odd ranks back: by all that is drawn, the seed, the same happens again."""
    _shift[0] = _NEXT[_shift[0]]


# Before otel_ml is imported, which takes the function as it finds it.
time.time_ns = lambda: _real_ns() + _shift[0]  # type: ignore[assignment]
time.time = lambda: (_real_ns() + _shift[0]) / 1e9  # type: ignore[assignment]

# gRPC's Python makes deadlines by this clock, and its core looks at the machine's: with a clock an hour behind, every
# call would be an hour late. On a machine with a wrong clock both read the same one.
if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc":
    import grpc._channel

    grpc._channel.time = SimpleNamespace(time=_real, perf_counter=time.perf_counter)

import otel_ml  # noqa: E402
from tests.chaos.layout import AXES  # noqa: E402
from tests.chaos.pulse import start_pulse  # noqa: E402
from tests.chaos.stalls import Watch  # noqa: E402
from tests.chaos.steps import RECORDED, file_of, reached_in  # noqa: E402


def main() -> None:
    folder, first, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    role, rank = os.environ["OTEL_SERVICE_NAME"], int(os.environ["RANK"])
    axis, tokens = AXES[role], 4.0**rank
    signal.signal(signal.SIGUSR1, jump)
    otel_ml.init("chaos", params={"seed": 1} if rank == 0 else None)
    step = reached_in(folder, role) + 1 if first == "join" else int(first)
    file = file_of(folder, role, rank, os.getpid())
    own = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start_pulse(file.with_suffix(".pulse"))
    watch = Watch(file.with_suffix(".stalls"))
    noted = _shift[0]
    while not (folder / "stop").exists():
        os.write(own, f"{time.monotonic()} {step}\n".encode())
        with watch:
            otel_ml.set_step(step, axis=axis)
            watch.call_ended("set_step")
            otel_ml.log({"tokens": tokens}, reduce="sum", axis=axis)
            watch.call_ended("log")
            otel_ml.log({"loss": float(step)}, axis=axis)
            watch.call_ended("log")
            with otel_ml.timed("work"):
                pass
            watch.call_ended("timed")
        os.write(own, f"{time.monotonic()} {step} {RECORDED}\n".encode())
        if _shift[0] != noted:
            noted = _shift[0]
            CLOCK.write_text(str(noted))
        step += 1
        time.sleep(pause)
    otel_ml.shutdown()


if __name__ == "__main__":
    main()
