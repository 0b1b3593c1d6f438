"""How long a training thread was held up: by our code, not by what the machine did meanwhile.

The time a thread could run and another program had the core is in the kernel's `schedstat`; what is left of the wall
time is the thread's own work and its waiting: for a lock, a disk, the interpreter, or for a processor that the machine
lost (`tests.chaos.stolen`).
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter_ns, thread_time_ns
from types import TracebackType
from typing import NamedTuple

from tests.chaos.stolen import Absence, any_stolen_ms, stolen_ms

WORTH_WRITING_NS = 1_000_000


class Stall(NamedTuple):
    """A piece of a training loop, or the longest call in it.

    Attributes:
        at: monotonic seconds at its end.
        wall_ms: how long it took.
        work_ms: CPU time of the thread.
        queue_ms: time in which the thread could run and did not get a core.
        others_ms: the same of the other threads of the process; one of them may have held the interpreter.
        call: its longest call.
        call_ms: how long that took.
        cpu: the processor it was on at its end.
        garbage_ms: in which the interpreter looked for garbage, here or on another thread; all wait for that.
        stolen_ms: how long that was away meanwhile; the kernel counts it as none of the above, or as work, or waiting.
        any_stolen_ms: how long any of them was: another thread of the process may have been on it.
    """

    at: float
    wall_ms: float
    work_ms: float
    queue_ms: float
    others_ms: float
    call: str
    call_ms: float
    cpu: int
    garbage_ms: float = 0.0
    stolen_ms: float = 0.0
    any_stolen_ms: float = 0.0

    @property
    def own_ms(self) -> float:
        """What the machine had no part in, at most."""
        queued_ms = min(self.queue_ms, self.wall_ms - self.work_ms)
        return self.wall_ms - max(queued_ms, self.stolen_ms)

    @property
    def surely_own_ms(self) -> float:
        """What it had no part in, at least: if this thread waited for others that got no core, one after the other."""
        return max(0.0, self.wall_ms - self.queue_ms - self.others_ms - self.any_stolen_ms)


class Garbage:
    """How long the interpreter has looked for garbage, on whatever thread: it lets no other one go on meanwhile."""

    def __init__(self) -> None:
        self.took_ns = self._began_ns = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":
            self._began_ns = perf_counter_ns()
        else:
            self.took_ns += perf_counter_ns() - self._began_ns


class Watch:
    """Measures each pass of a block on this thread, and writes down those that took longer than a millisecond.

    Args:
        file: one line a `Stall`.
    """

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._queue = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._stat = os.open(f"/proc/self/task/{threading.get_native_id()}/stat", os.O_RDONLY)
        self._calls: list[tuple[str, int]] = []
        self._garbage = Garbage()

    def __enter__(self) -> Watch:
        self._calls.clear()
        self._others_ns = self._queued_elsewhere_ns()
        self._queue_ns = self._queued_ns()
        self._garbage_ns = self._garbage.took_ns
        self._work_ns = thread_time_ns()
        self._began_ns = perf_counter_ns()
        return self

    def call_ended(self, call: str) -> None:
        """Tell which call has just returned."""
        self._calls.append((call, perf_counter_ns()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall_ns = perf_counter_ns() - self._began_ns
        if wall_ns < WORTH_WRITING_NS:
            return
        work_ns = thread_time_ns() - self._work_ns
        queue_ns = self._queued_ns() - self._queue_ns
        call_ns, call = max(_took(self._began_ns, self._calls), default=(0, "-"))
        others_ns = max(0, self._queued_elsewhere_ns() - self._others_ns)  # a thread that ended takes its time along
        times = (wall_ns, work_ns, queue_ns, others_ns)
        shown = " ".join(f"{ns / 1e6:.3f}" for ns in times)
        garbage_ms = (self._garbage.took_ns - self._garbage_ns) / 1e6
        line = f"{monotonic()} {shown} {call} {call_ns / 1e6:.3f} {self._cpu()} {garbage_ms:.3f}\n"
        os.write(self._file, line.encode())

    def _cpu(self) -> int:
        """Return the processor this thread is on: field 39 of `stat`, proc_pid_stat(5)."""
        return int(os.pread(self._stat, 1000, 0).rpartition(b")")[2].split()[36])

    def _queued_ns(self) -> int:
        return int(os.pread(self._queue, 100, 0).split()[1])

    def _queued_elsewhere_ns(self) -> int:
        total = 0
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it ended meanwhile
                total += int((task / "schedstat").read_text().split()[1])
        return total - self._queued_ns()


def _took(began_ns: int, calls: Sequence[tuple[str, int]]) -> Iterator[tuple[int, str]]:
    for call, ended_ns in calls:
        yield ended_ns - began_ns, call
        began_ns = ended_ns


def stalls_in(file: Path, absences: Sequence[Absence] = ()) -> list[Stall]:
    """Return what a `Watch` wrote down, and how much of it a processor was away."""
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    stalls = [Stall(*map(float, line[:5]), line[5], float(line[6]), int(line[7]), float(line[8])) for line in lines]
    return [
        stall._replace(
            stolen_ms=stolen_ms(absences, stall.cpu, began, stall.at),
            any_stolen_ms=any_stolen_ms(absences, began, stall.at),
        )
        for stall in stalls
        for began in [stall.at - stall.wall_ms / 1e3]
    ]
