"""A file that processes of this host write into in turns: in the folder of all rendezvous, for this user only."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from otel_ml.wire.rendezvous import is_private, rendezvous_of

__all__ = ["UNWRITTEN", "common_file"]

UNWRITTEN = "nothing can be written down"
"""What is said once where there is no such file, whatever was to be in it."""

_PATIENCE_S = 10.0
"""How long the file may be another process', each for some milliseconds."""


@contextmanager
def common_file(name: str, create: int) -> Iterator[IO[str]]:
    """Yield a file, to be read and changed while nobody else does; `create` as in open(2).

    Raises:
        OSError: there is none, or the folder is not this user's alone.
    """
    folder = rendezvous_of("").folder.parent
    if create:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(f"{folder} is not a private folder of user {os.getuid()}")
    handle = os.open(folder / name, os.O_RDWR | create | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+", encoding="utf-8") as file:
        _lock(handle)
        yield file


def _lock(handle: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.005)
