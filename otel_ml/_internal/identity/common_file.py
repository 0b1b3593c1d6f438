"""A file that processes of this host write into in turns: in the folder of all rendezvous, for this user only."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from otel_ml.wire.rendezvous import is_private, rendezvous_of

__all__ = ["UNWRITTEN", "CommonFile", "common_file"]

UNWRITTEN = "nothing can be written down"
"""What is said once where there is no such file, whatever was to be in it."""

_TIMEOUT_S = 10.0
"""How long the file may be another process', each for some milliseconds."""


_TO_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class CommonFile:
    """A file that is this process' for now.

    Attributes:
        text: what is in it; nothing in one that is new, and what cannot be read is replaced.
    """

    path: Path
    text: str

    def write(self, text: str) -> None:
        """Put another text in its place, the last thing done with it: all of it or, killed meanwhile, nothing."""
        new = self.path.with_name(f".{self.path.name}.new")  # who has the file writes it, and nobody else
        with os.fdopen(os.open(new, _TO_WRITE, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(self.path)


@contextmanager
def common_file(name: str, create: int) -> Iterator[CommonFile]:
    """Yield a file, to be read and changed while nobody else does; `create` as in open(2).

    Raises:
        OSError: there is none, or the folder is not this user's alone.
    """
    folder = rendezvous_of("").folder.parent
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A missing folder is not private either: without O_CREAT callers take this error for "nothing is written down".
    if not is_private(folder):
        raise PermissionError(f"{folder} is not a private folder of user {os.getuid()}")
    path, until = folder / name, time.monotonic() + _TIMEOUT_S
    while True:
        # Opened anew at each turn: who had it may have put another file in its place (`CommonFile.write`).
        handle = os.open(path, os.O_RDWR | create | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, encoding="utf-8", errors="replace") as file:
            if _is_locked(file, path):
                try:
                    yield CommonFile(path, file.read())
                finally:
                    fcntl.flock(file, fcntl.LOCK_UN)  # a child that another thread has forked has it open, too
                return
        if time.monotonic() > until:
            raise BlockingIOError(errno.EAGAIN, "another process keeps it for itself", str(path))
        time.sleep(0.005)


def _is_locked(file: IO[str], path: Path) -> bool:
    """Lock a file unless another process has it, or has put another one in its place; return whether it is ours now."""
    try:
        # Not waited for: a blocking flock() has no timeout. The file is compared after it is locked, as the process
        # that had the lock may have replaced it until then; a lock on the replaced file would keep nobody out.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
