"""What a busy process takes of two cores beside four busy ranks, by its session and niceness (ADR 0020).

`taskset --cpu-list 0,1 python -m tests.benchmarks.shares` prints a table. It is not part of `make bench`: what it
measures is the kernel's scheduler.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

RANKS = 4
SECONDS = 4.0

BUSY = "while True: pass"
NICE = "import os; os.nice({0}); open('/proc/self/autogroup', 'w').write('{0}')\n" + BUSY


def taken(*, ranks_are_apart: bool, nice: int | None) -> float:
    """Return the cores that the process takes; `nice` is None for one in the session of the ranks."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY], start_new_session=ranks_are_apart) for _ in range(RANKS)]
    program = BUSY if nice is None else NICE.format(nice)
    one = subprocess.Popen([sys.executable, "-c", program], start_new_session=nice is not None)
    try:
        time.sleep(1)  # until all run
        begun = cpu_seconds(one.pid)
        time.sleep(SECONDS)
        return (cpu_seconds(one.pid) - begun) / SECONDS
    finally:
        for process in (*busy, one):
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def main() -> None:
    print(f"| ranks | the process | of {len(os.sched_getaffinity(0))} cores |\n| --- | --- | --- |")
    for ranks_are_apart in (False, True):
        for nice in (None, 0, 5, 10):
            ranks = "each in a session" if ranks_are_apart else "in one session"
            process = "in one with the job" if nice is None else f"in its own, nice {nice}"
            print(f"| {ranks} | {process} | {taken(ranks_are_apart=ranks_are_apart, nice=nice):.2f} |", flush=True)


if __name__ == "__main__":
    main()
