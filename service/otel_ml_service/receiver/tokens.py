"""The bearer tokens that a service takes: those it was given, and those of a file, read again when it has changed."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from otel_ml.explanation import explained
from otel_ml.variable import token as checked

__all__ = ["Tokens", "tokens_in"]

_log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]
"""What changes with a file: another file, its time, its size."""


def tokens_in(path: Path) -> tuple[str, ...]:
    """Return the tokens of a file, one a line.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds none, or what none can be.
    """
    found = tuple(checked(line.strip()) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    if not found:
        raise ValueError("it holds no token")
    return found


class Tokens:
    """Says who may send. Safe to use from several threads.

    Args:
        given: tokens that do not change; none, and no file: everybody may send.
        file: one token a line. While it cannot be read, or holds none, those it had stay in force, which is logged.
    """

    def __init__(self, given: Sequence[str] = (), file: Path | None = None) -> None:
        self._given = tuple(given)
        self._file = file
        self._lock = threading.Lock()
        self._stamp: _Stamp | None = None
        self._complaint = ""
        self._accepted = self._headers(())
        self._look_again()

    @property
    def are_demanded(self) -> bool:
        """Whether a token has to be shown."""
        return bool(self._given or self._file)

    def accept(self, authorization: bytes) -> bool:
        """Whether who shows this header may send; takes as long whichever token it is not."""
        if not self.are_demanded:
            return True
        self._look_again()
        # All are compared, and a sum is taken instead of the first that fits.
        # Read without the lock: `_look_again` exchanges the whole tuple.
        return sum(hmac.compare_digest(authorization, accepted) for accepted in self._accepted) > 0

    def _look_again(self) -> None:
        if self._file is None:
            return
        try:
            found = self._file.stat()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            with self._lock:
                if stamp != self._stamp:
                    self._accepted = self._headers(tokens_in(self._file))
                    # Last: a file that cannot be read, because it is being written, is read again at the next request.
                    self._stamp = stamp
        except (OSError, ValueError) as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        complaint = f"{error}"
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning(
                "%s",
                explained(f"{self._file} cannot be read ({complaint}); the tokens it had stay in force.", "token-file"),
            )

    def _headers(self, of_the_file: Sequence[str]) -> tuple[bytes, ...]:
        return tuple(f"Bearer {token}".encode() for token in (*self._given, *of_the_file))
