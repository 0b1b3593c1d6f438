"""Whether the process of a writer lives, as far as this host can tell without a doubt."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from otel_ml.wire.pid_namespace import pid_namespace
from otel_ml.wire.rendezvous import boot_id
from otel_ml_service.aggregation.observation import Writer

__all__ = ["ProcessTable"]

_STATE, _THREADS, _STARTED = 0, 17, 19
"""Places in `/proc/<pid>/stat` behind the name."""


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
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        # Of a process whose main thread has ended, others may go on.
        has_ended = fields[_STATE] in {"Z", "X"} and int(fields[_THREADS]) <= 1
        return _Process(has_ended, fields[_STARTED])
    except (OSError, IndexError, ValueError):
        return None
