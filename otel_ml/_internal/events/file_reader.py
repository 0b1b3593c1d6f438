"""Reads artifacts' files on a thread of its own: a checkpoint takes seconds, in which metrics go on to the spool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Queue, SimpleQueue

from otel_ml._internal.events.log_record import LogRecord

__all__ = ["FileReader", "Read"]

Read = Callable[[Callable[[], bool]], Iterable[LogRecord]]
"""Makes the records of an artifact, and asks after each piece of a file whether there is time for the next."""

_READY = 8
"""Records that wait to be taken, of up to 4 MiB each."""

_AT_ONCE = 64
"""Records taken in one look, so that metrics wait for no folder of thousands of files."""


class FileReader:
    """Reads artifacts in the order in which they were logged. It belongs to the worker's background thread."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Read | None] = SimpleQueue()
        self._ready: Queue[LogRecord | None] = Queue(_READY)
        self._left = 0
        self._is_late = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was asked for is read and taken."""
        return self._left == 0

    def read(self, artifact: Read) -> None:
        """Have an artifact read; its records come by `take()`."""
        self._left += 1
        self._asked.put(artifact)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="otel_ml_files", daemon=True)
            self._thread.start()

    def take(self, timeout: float = 0.0) -> Iterator[LogRecord]:
        """Yield what is read by now; wait for the first for `timeout` seconds at most."""
        for _ in range(_AT_ONCE if self._left else 0):
            try:
                record = self._ready.get(timeout=timeout) if timeout else self._ready.get_nowait()
            except Empty:
                return
            if record is None:
                self._left -= 1
            else:
                yield record
            timeout = 0.0

    def give_up(self) -> None:
        """Read no further: of the files that are left only their place and size are recorded."""
        self._is_late.set()

    def close(self) -> None:
        """Let the thread end."""
        self._asked.put(None)

    def _work(self) -> None:
        while (artifact := self._asked.get()) is not None:
            for record in artifact(self._has_time):
                self._ready.put(record)
            self._ready.put(None)

    def _has_time(self) -> bool:
        return not self._is_late.is_set()
