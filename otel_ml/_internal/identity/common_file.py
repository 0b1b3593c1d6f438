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

from otel_ml.wire.rendezvous import is_private, rendezvous_of, write_private

__all__ = ["UNWRITTEN", "CommonFile", "common_file"]

UNWRITTEN = "nothing can be written down"
"""What is said once where there is no such file, whatever was to be in it."""

_PATIENCE_S = 10.0
"""How long the file may be another process', each for some milliseconds."""


@dataclass(frozen=True, slots=True)
class CommonFile:
    """A file that is this process' for now.

    Attributes:
        text: what is in it; nothing in one that is new.
    """

    path: Path
    text: str

    def write(self, text: str) -> None:
        """Put another text in its place, the last thing done with it: all of it or, killed meanwhile, nothing."""
        write_private(self.path, text)


@contextmanager
def common_file(name: str, create: int) -> Iterator[CommonFile]:
    """Yield a file, to be read and changed while nobody else does; `create` as in open(2).

    Raises:
        OSError: there is none, or the folder is not this user's alone.
        UnicodeDecodeError: it is not text.
    """
    folder = rendezvous_of("").folder.parent
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(f"{folder} is not a private folder of user {os.getuid()}")
    path, until = folder / name, time.monotonic() + _PATIENCE_S
    while True:
        handle = os.open(path, os.O_RDWR | create | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, encoding="utf-8") as file:
            if _is_locked(file, path):
                yield CommonFile(path, file.read())
                return
        if time.monotonic() > until:
            raise BlockingIOError(errno.EAGAIN, "another process keeps it for itself", str(path))
        time.sleep(0.005)


def _is_locked(file: IO[str], path: Path) -> bool:
    """Lock a file unless another process has it, or has put another one in its place; return whether it is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
