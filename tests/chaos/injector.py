"""Injects a schedule of faults into a job, and says how far it is."""

from __future__ import annotations

import heapq
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.chaos.faults import Faults
from tests.chaos.job import Job
from tests.chaos.schedule import Fault
from tests.chaos.steps import reached_in

PROGRESS_S = 10.0


class Injector:
    """Begins and ends faults when it is time.

    Attributes:
        injected: how many of each kind.
        ended: programs that ended by themselves.
    """

    def __init__(self, job: Job) -> None:
        self.injected: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self._job = job
        self._faults = Faults(job)

    def inject(self, schedule: Sequence[Fault]) -> None:
        """Inject all of `schedule`; return when the last fault has ended."""
        began = said = time.monotonic()
        order = itertools.count()
        due: list[tuple[float, int, Callable[[], None]]] = []

        def begin(fault: Fault) -> None:
            end = self._faults.begin(fault)
            self.injected[fault.kind] += 1
            heapq.heappush(due, (time.monotonic() - began + fault.seconds, next(order), end))

        for fault in schedule:
            heapq.heappush(due, (fault.at, next(order), lambda fault=fault: begin(fault)))
        while due:
            now = time.monotonic()
            if due[0][0] <= now - began:
                heapq.heappop(due)[2]()
            else:
                time.sleep(min(0.1, due[0][0] - (now - began)))
            self.ended.update(self._job.hops.look_after())
            if now - said >= PROGRESS_S:
                said = now
                self._say(len(schedule), now - began)

    def _say(self, faults: int, passed_s: float) -> None:
        reached = ", ".join(f"{role} at {reached_in(self._job.steps, role)}" for role in ("trainer", "generator"))
        line = f"{self._job.mode}: {passed_s:4.0f} s, {self.injected.total()} of {faults} faults, {reached}"
        print(f"  … {line}", file=sys.stderr, flush=True)
