"""Which writers of a job have died: the process table of their host knows it at once, silence only after a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from otel_ml.wire.pid_namespace import pid_namespace
from otel_ml.wire.rendezvous import boot_id
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.live_runs.leftover_spools import Left

__all__ = ["DeadWriters", "Died", "ProcessTable"]

_STATE, _THREADS, _STARTED = 0, 17, 19
"""Places in `/proc/<pid>/stat` behind the name: fields 3, 20 and 22 of proc(5)."""


class _Process(NamedTuple):
    has_ended: bool
    started: str


class ProcessTable:
    """Knows the processes of one boot of a host and of one namespace of their numbers: its own."""

    def __init__(self) -> None:
        self._place = boot_id(), pid_namespace()
        self._is_usable = bool(pid_namespace()) and _shows_own_namespace()
        self._started: dict[str, str] = {}

    def ended(self, writers: Iterable[Writer]) -> list[Writer]:
        """Return those whose processes are surely gone: not of another host or container, and not in doubt.

        A number may be given to another process, which is told by when it started. Whoever has it at the first look is
        taken for the writer: where that is wrong, the writer is gone, too.
        """
        # Only those of this look are remembered: writers that are gone leave nothing behind.
        before, self._started = self._started, {}
        return [one for one in writers if self._is_own(one) and self._has_ended(one, before.get(one.instance, ""))]

    def _is_own(self, writer: Writer) -> bool:
        return self._is_usable and writer.pid > 0 and (writer.boot, writer.pid_namespace) == self._place

    def _has_ended(self, writer: Writer, started: str) -> bool:
        if not _exists(writer.pid):
            return True
        found = _process(writer.pid)
        if found is None:
            return False
        self._started[writer.instance] = started or found.started
        return found.has_ended or found.started != self._started[writer.instance]


def _shows_own_namespace() -> bool:
    """Whether `/proc` has the numbers that this process uses: it may have been mounted for another namespace."""
    try:
        return Path("/proc/self").readlink().name == str(os.getpid())
    except OSError:
        return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # `/proc` may hide the processes of others
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _process(pid: int) -> _Process | None:
    """Return what `/proc` says of a process; None where it says nothing."""
    try:
        # Behind the name, in which there may be spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        # Of a process whose main thread has ended, others may go on.
        has_ended = fields[_STATE] in {"Z", "X"} and int(fields[_THREADS]) <= 1
        return _Process(has_ended, fields[_STARTED])
    except (OSError, IndexError, ValueError):
        return None


_EVERY_S = 1.0
"""How often the processes are looked at; each costs 10 µs."""

_AGAIN_S = 0.05
"""The same while what one of them left is taken in: who leaves meanwhile waits to be told whether it is the last."""

_TAKEN_IN_S = 5.0
"""How long a spool that nobody takes in is waited for, at most: one that cannot be read stays where it is."""


class Died(NamedTuple):
    """Who has died without a shutdown message.

    Attributes:
        settled: those of whom nothing more comes.
        leaving: the others, whose spools are still to be taken in.
    """

    settled: Sequence[Writer] = ()
    leaving: Sequence[Writer] = ()


class DeadWriters:
    """Looks at the processes of those of whom more may come. Owned by the engine's thread.

    Args:
        left: what this instance has left.
    """

    def __init__(self, left: Callable[[str], Left]) -> None:
        self._left = left
        self._table = ProcessTable()
        self._looked_at = 0.0
        self._since: dict[str, float] = {}

    @property
    def is_due(self) -> bool:
        """Whether it is time for a look."""
        return time.monotonic() - self._looked_at >= self.wait_s

    @property
    def wait_s(self) -> float:
        """Seconds between two looks."""
        return _AGAIN_S if self._since else _EVERY_S

    def among(self, awaited: Sequence[Writer]) -> Died:
        """Return who of the writers of a job, of whom more may come, has died."""
        now = self._looked_at = time.monotonic()
        gone = self._table.ended(awaited)
        left = {one.instance: self._left(one.instance) for one in gone}
        # Large spools and full disks take their time: what a writer said last may be at the end of its spool.
        since = {
            instance: now if what == "being taken in" else self._since.get(instance, now)
            for instance, what in left.items()
        }
        late = {one for one, what in left.items() if what == "a spool" and now - since[one] >= _TAKEN_IN_S}
        settled = [one for one in gone if one.instance in late or left[one.instance] == "nothing"]
        leaving = [one for one in gone if one not in settled]
        self._since = {one.instance: since[one.instance] for one in leaving}
        return Died(settled, leaving)
