"""Reads artifacts' files on a thread of its own: a checkpoint takes seconds, in which metrics go on to the spool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, Queue, SimpleQueue

from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.own_threads import begin_own_thread

__all__ = ["FileReader", "Read", "ReadLimit"]

_READY = 8
"""Records that wait to be taken, of up to 4 MiB each."""

_AT_ONCE = 64
"""Records taken in one look, so that metrics wait for no folder of thousands of files."""


class ReadLimit:
    """What there is time for; asked before each file, and after each piece of one."""

    def __init__(self) -> None:
        self._is_late = threading.Event()
        self._is_over = threading.Event()

    def has_time(self) -> bool:
        """Whether files are read; else only their place and size are recorded."""
        return not self._is_late.is_set()

    def is_over(self) -> bool:
        """Whether there is no time for places either: what is left is counted."""
        return self._is_over.is_set()

    def read_no_further(self) -> None:
        """Of the files that are left have only their place and size recorded."""
        self._is_late.set()

    def end(self) -> None:
        """Have the files that are left counted."""
        self._is_late.set()
        self._is_over.set()


Read = Callable[[ReadLimit], Iterable[LogRecord]]
"""Makes the records of an artifact, as far as there is time; it counts the files that it makes none of."""


class FileReader:
    """Reads artifacts in the order in which they were logged. It belongs to the worker's background thread.

    Attributes:
        limit: what there is time for.
        left: artifacts that were asked for and are not read and taken.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[Read | None] = SimpleQueue()
        self._ready: Queue[LogRecord | None] = Queue(_READY)
        self.limit = ReadLimit()
        self.left = 0
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was asked for is read and taken."""
        return self.left == 0

    def read(self, artifact: Read) -> None:
        """Have an artifact read; its records come by `take()`."""
        self.left += 1
        self._asked.put(artifact)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="otel_ml_files", daemon=True)
            with suppress(RuntimeError):  # the system gives no thread: `take()` reads
                thread.start()
                self._thread = thread

    def take(self, timeout: float = 0.0) -> Iterator[LogRecord]:
        """Yield what is read by now; wait for the first for `timeout` seconds at most."""
        if self._thread is None and self.left:
            yield from self._read_here()
            return
        for _ in range(_AT_ONCE if self.left else 0):
            try:
                record = self._ready.get(timeout=timeout) if timeout else self._ready.get_nowait()
            except Empty:
                return
            # It stands behind the last record of an artifact.
            if record is None:
                self.left -= 1
            else:
                yield record
            timeout = 0.0

    def _read_here(self) -> Iterator[LogRecord]:
        """Read one artifact on the caller's thread."""
        artifact = self._asked.get()
        if artifact is not None:
            yield from artifact(self.limit)
            del artifact
            self.left -= 1

    def close(self) -> None:
        """Let the thread end."""
        self._asked.put(None)

    def _work(self) -> None:
        begin_own_thread()
        while (artifact := self._asked.get()) is not None:
            for record in artifact(self.limit):
                # Waits while `_READY` records are there: a large folder is not read into memory ahead of who takes its
                # records.
                self._ready.put(record)
            # With a folder of ours that it holds: after the last one the process may end.
            del artifact
            # `take()` counts the artifact as read.
            self._ready.put(None)
