"""What the exporter `console` writes in a job's own service: kept until a process of the job has printed it."""

from __future__ import annotations

import io
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

__all__ = ["ConsoleLines"]

MOST = 200
"""Lines that wait for whoever prints them, who asks once a second: more in a second nobody reads."""


class ConsoleLines(io.TextIOBase):
    """A text stream whose lines are handed over by number.

    The service's own output is a log file; the terminal is that of the job. The exporter's thread writes, and the
    receiver's hands over.

    Args:
        first: number of the first line. The process that prints may go on with numbers of a service that was killed:
            numbers of this one are to be above those, so that nothing of it is taken for printed.
    """

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._lines: deque[str] = deque()
        self._first = first
        self._begun = ""
        self._left_out = 0

    def writable(self) -> bool:
        """Return True, as a stream that can be written to does."""
        return True

    def write(self, text: str, /) -> int:
        """Take text; a line counts once its end is there."""
        with self._lock:
            *whole, self._begun = (self._begun + text).split("\n")
            self._lines.extend(whole)
            while len(self._lines) > MOST:
                self._drop_first()
                self._left_out += 1
        return len(text)

    def after(self, taken: int) -> Mapping[str, Any]:
        """Return the lines that nobody has printed yet, and forget those before number `taken`, which were.

        Returns:
            `lines`; `next`, what to call with once they are printed; `left_out`, how many were never handed over.
        """
        with self._lock:
            # Beyond all that there are: of a service whose clock was ahead, and none of these lines was printed.
            taken = taken if taken <= self._first + len(self._lines) else 0
            while self._lines and self._first < taken:
                self._drop_first()
            # Told once: the process that prints says it in its place.
            left_out, self._left_out = self._left_out, 0
            return {"lines": list(self._lines), "next": self._first + len(self._lines), "left_out": left_out}

    def _drop_first(self) -> None:
        self._lines.popleft()
        self._first += 1
