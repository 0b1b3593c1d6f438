"""One sampler a host: the processes of a job agree by a lock beside the run's rendezvous folder.

::

    <runtime dir>/otel-ml-<uid>/<digest of run and boot>.hardware/
        <source>.lock    flock: who holds it samples that source
        origin           seconds since the epoch at which the axis `time` begins
        processes        one line a process of the job: pid and start time
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from otel_ml._internal.transport.file_descriptor import OwnDescriptor
from otel_ml.wire.rendezvous import is_private, rendezvous_of

__all__ = ["Election", "HostFolder"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class HostFolder:
    """What the processes of a run on this host share for their diagnostics.

    Raises:
        OSError: it cannot be made, or is open to others.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        folder = rendezvous_of(run_id).folder
        self.path: Path = folder.with_name(f"{folder.name}.hardware")
        # Both: in a parent that others write to, the folder could be exchanged.
        for wanted in (self.path.parent, self.path):
            wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_private(wanted):
                raise PermissionError(f"{wanted} is not a private folder of user {os.getuid()}; remove it")

    def origin(self) -> float:
        """Return when the axis `time` begins: all samplers of the run agree, also those that take over or restart.

        The default id of a run holds the time it was made, the same on every host; for other ids, the first sampler of
        this host decides.
        """
        made = _time_of(self._run_id)
        if made is not None:
            return made
        file = self.path / "origin"
        mine = self.path / f"origin.{os.getpid()}"
        with contextlib.suppress(OSError):  # a link is there whole or not at all, and the first one stays
            mine.write_text(repr(time.time()))
            os.link(mine, file)
        mine.unlink(missing_ok=True)
        try:
            return float(file.read_text())
        except (OSError, ValueError):
            return time.time()

    def join(self) -> None:
        """Say that this process is one of the job."""
        # With its start, since the file outlives a process, and its number may be given to another one.
        line = f"{os.getpid()} {_started(os.getpid())}\n".encode()
        with contextlib.suppress(OSError):
            handle = os.open(self.path / "processes", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, line)  # one write: lines of several processes do not mix
            finally:
                os.close(handle)

    def processes(self) -> Iterator[int]:
        """Yield the pids that joined and still are who they were: a pid may be another process' by now."""
        try:
            lines = (self.path / "processes").read_text().splitlines()
        except OSError:
            lines = []
        for line in dict.fromkeys(lines):
            pid, _, started = line.partition(" ")
            if pid.isdigit() and _started(int(pid)) == started:
                yield int(pid)

    def leave(self) -> None:
        """Remove the folder behind the last process of the job; the origin of an id without a time is kept.

        Whoever joins just then finds its lock gone at its next sample, and begins anew (`Election.is_won`).
        """
        others = [pid for pid in self.processes() if pid != os.getpid()]
        if not others and _time_of(self._run_id) is not None:
            shutil.rmtree(self.path, ignore_errors=True)


class Election:
    """The right to sample one source on this host. The kernel gives it back when the process ends, however it ends."""

    def __init__(self, folder: HostFolder, source: str) -> None:
        self._path = folder.path / f"{source}.lock"
        self._lock: OwnDescriptor | None = None
        _held.add(self)

    def is_won(self) -> bool:
        """Whether this process is the sampler, taking the place if it is free.

        Raises:
            OSError: the lock cannot be used; its folder may have been removed.
        """
        if self._lock is not None:
            # By device and inode: a file of the same name that was made anew is another lock.
            found = self._path.stat()
            if self._lock.is_ours() and self._lock.identity == (found.st_dev, found.st_ino):
                return True
            # Removed and made again, or closed by the program: the lock we held excludes nobody.
            self.release()
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if isinstance(error, BlockingIOError):
                return False
            raise
        self._lock = OwnDescriptor(handle)
        return True

    def release(self) -> None:
        """Let another process take the place."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()


_held: weakref.WeakSet[Election] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # A child shares the parent's lock and would keep it when the parent dies; closing its copy leaves the parent's.
    for election in list(_held):
        election.release()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _time_of(run_id: str) -> float | None:
    """Return the time in a sortable id (48 bits of milliseconds, then 80 random ones), or None for any other id.

    Examples:
        >>> _time_of("01ARYZ6S41TSV4RRFFQ69G5FAV"), _time_of("my-run")
        (1469918176.385, None)
    """
    if len(run_id) != 26 or set(run_id) - set(_CROCKFORD):
        return None
    milliseconds = 0
    for character in run_id[:10]:
        milliseconds = milliseconds << 5 | _CROCKFORD.index(character)
    # Clocks of hosts differ by less than a minute: a time still to come is chance, in an id of another kind.
    made = milliseconds / 1000
    return made if made <= time.time() + 60 else None


def _started(pid: int) -> str:
    """Return what tells this process from another one of the same pid, or nothing where the system does not tell."""
    with contextlib.suppress(OSError, IndexError):
        # Field 22 of proc(5), counted from behind the program's name, which may hold spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return "?"
    return ""
