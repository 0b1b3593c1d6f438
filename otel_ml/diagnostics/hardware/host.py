"""The host and the job's processes on it, by psutil."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from otel_ml.diagnostics.hardware.source import Counters, Reading, UnavailableError

__all__ = ["Host"]


class Host:
    """Processors, memory, and the processes of the job; a `Source`.

    Args:
        roots: returns the processes of the job on this host; what descends from them belongs to it.

    Raises:
        UnavailableError: psutil is not installed.
    """

    def __init__(self, roots: Callable[[], Iterable[int]]) -> None:
        try:
            import psutil
        except ImportError:
            raise UnavailableError("no package psutil (pip install 'otel-ml[hardware]')") from None
        self._psutil: Any = psutil
        self._roots = roots
        self._counters = Counters()
        self._read_at: float | None = None

    @property
    def facts(self) -> Mapping[str, object]:
        """Number of processors and size of memory, as far as the system tells."""
        facts: dict[str, object] = {}
        with contextlib.suppress(self._psutil.Error, OSError):
            facts["cpus"] = self._psutil.cpu_count()
            facts["memory_bytes"] = self._psutil.virtual_memory().total
        return {key: value for key, value in facts.items() if value}

    def read(self) -> Iterator[Reading]:
        """Yield all readings; where `/proc` does not tell something, the rest."""
        # The clock in which the kernel tells when a process was born.
        now = time.time()
        before, self._read_at = self._read_at, now
        for read in (self._processors, self._memory, self._processes):
            try:
                yield from read(before, now)
            except (self._psutil.Error, OSError, NotImplementedError):
                continue

    def close(self) -> None:
        """Nothing is open."""

    def _processors(self, before: float | None, now: float) -> list[Reading]:
        share = self._psutil.cpu_percent() / 100
        # The first call has nothing to compare with, and says 0.
        return [] if before is None or now <= before else [Reading("system.cpu.utilization", share, {})]

    def _memory(self, before: float | None, now: float) -> list[Reading]:
        del before, now
        memory = self._psutil.virtual_memory()
        used = memory.total - memory.available
        return [
            Reading("system.memory.usage", float(used), {}),
            Reading("system.memory.limit", float(memory.total), {}),
            Reading("system.memory.utilization", used / memory.total, {}),
        ]

    def _processes(self, before: float | None, now: float) -> list[Reading]:
        resident = virtual = cpu = 0.0
        count = 0
        for process in self._tree():
            try:
                with process.oneshot():
                    memory, times, born = process.memory_info(), process.cpu_times(), process.create_time()
            except self._psutil.Error:  # it ended meanwhile, or is somebody else's
                continue
            count += 1
            resident += memory.rss
            virtual += memory.vms
            spent = times.user + times.system
            # With its time of birth: the pid alone may be another process' by the next look.
            grown = self._counters.grown((process.pid, born), spent)
            # Who was born since the last look has spent all of it since; of who joined the job later nothing is known.
            cpu += grown if grown is not None else spent if before is not None and born >= before else 0.0
        if not count:
            return []
        readings = [
            Reading("process.count", float(count), {}),
            Reading("process.memory.usage", resident, {}),
            Reading("process.memory.virtual", virtual, {}),
        ]
        if before is not None and now > before:
            # The kernel counts in ticks of 10 ms: of a short interval, it may have counted more than there was.
            share = min(1.0, cpu / (now - before) / (self._psutil.cpu_count() or 1))
            readings.append(Reading("process.cpu.utilization", share, {}))
        return readings

    def _tree(self) -> list[Any]:
        """Return the job's processes with all that descends from them, each once: a rank may be another's child.

        One look at all processes of the host, not one for each rank.
        """
        known: dict[int, Any] = {}
        children: dict[int, list[int]] = {}
        # A process may end between two of these calls: it is then left out.
        for process in self._psutil.process_iter():
            with contextlib.suppress(self._psutil.Error, OSError):
                children.setdefault(process.ppid(), []).append(process.pid)
                known[process.pid] = process
        found: dict[int, Any] = {}
        waiting = list(self._roots())
        while waiting:
            pid = waiting.pop()
            if pid in known and pid not in found:
                found[pid] = known[pid]
                waiting += children.get(pid, ())
        return list(found.values())
