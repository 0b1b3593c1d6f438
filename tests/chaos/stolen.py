"""When a processor did nothing for anybody: `python -m tests.chaos.stolen FOLDER CPU`.

A virtual machine loses its processors to others now and then. To a thread that is neither work nor waiting for a core,
so that it looks like waiting for a lock, or it is counted as work. A process that goes before all others on its
processor, and wakes every millisecond, is late only when the processor itself is away (or its kernel busy); `steal` in
`/proc/stat` says that in steps of 10 ms.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

PERIOD_S = 0.001
LATE_S = 0.001


class Absence(NamedTuple):
    """From when to when (monotonic seconds) a processor was away."""

    cpu: int
    began: float
    ended: float


def file_of(folder: Path, cpu: int) -> Path:
    return folder / f"cpu-{cpu}.stolen"


def absences_in(folder: Path) -> list[Absence]:
    """Return what the watchers of all processors wrote down."""
    lines = [line for file in folder.glob("*.stolen") for line in file.read_text().splitlines(keepends=True)]
    parts = [line.split() for line in lines if line.endswith("\n")]
    return [Absence(int(cpu), float(began), float(ended)) for cpu, began, ended in parts]


def stolen_ms(absences: Iterable[Absence], cpu: int, began: float, ended: float) -> float:
    """Return for how long a processor was away between two moments."""
    shared = (min(ended, one.ended) - max(began, one.began) for one in absences if one.cpu == cpu)
    return sum(max(0.0, seconds) for seconds in shared) * 1e3


def any_stolen_ms(absences: Iterable[Absence], began: float, ended: float) -> float:
    """Return for how long at least one processor was away: a thread that others waited for may have been on it."""
    total, until = 0.0, began
    for one in sorted(absences, key=lambda one: one.began):
        total += max(0.0, min(one.ended, ended) - max(one.began, until))
        until = max(until, one.ended)
    return total * 1e3


def watch(folder: Path, cpu: int) -> None:
    """Write down each time this process, which sleeps for a millisecond again and again, woke late."""
    due = monotonic() + PERIOD_S
    with file_of(folder, cpu).open("w", buffering=1) as file:
        while not (folder / "stop").exists():
            time.sleep(PERIOD_S)  # what is measured is by how much it is late
            now = monotonic()
            if now - due > LATE_S:
                file.write(f"{cpu} {due} {now}\n")
                now = monotonic()
            due = now + PERIOD_S  # else it could be late in between, and nobody would know


def main() -> None:
    folder, cpu = Path(sys.argv[1]), int(sys.argv[2])
    os.sched_setaffinity(0, {cpu})
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if os.sched_getscheduler(0) == os.SCHED_FIFO:  # else other programs make it late
        watch(folder, cpu)


if __name__ == "__main__":
    main()
