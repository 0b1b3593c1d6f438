"""Why the operating system refuses what SQLite asks for, where SQLite does not say so."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["NO_FILES", "may_open_files", "refusal_of_growth"]

NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_OF_TWO_DATABASES = 8
"""Files that SQLite has open at once for a rescue: of each database itself, its log, the index of that, its folder."""

_GROWTH = 2**20
"""Bytes that are tried: a commit may want as many."""


def may_open_files() -> bool:
    """Whether SQLite finds as many as it may have asked for; those it had are closed by now."""
    taken: list[int] = []
    try:
        taken.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(_OF_TWO_DATABASES))
    except OSError as error:
        return error.errno not in NO_FILES
    finally:
        for handle in taken:
            os.close(handle)
    return True


def refusal_of_growth(database: Path) -> OSError | None:
    """Return why a file as large as a database, or as its log, may not grow in that folder; None where it may.

    SQLite says "disk I/O error" of a quota and of a limit of the size of files: of what is not full alone.
    """
    size = 0
    for path in (database, database.with_name(f"{database.name}-wal")):
        with suppress(OSError):
            size = max(size, path.stat().st_size)
    try:
        with tempfile.TemporaryFile(dir=database.parent, buffering=0) as file:
            # Behind a hole as large as the database: a limit of the size of files looks at where a write ends.
            written = 0
            while written < _GROWTH:  # the first write may be cut short without a reason; the next one has it
                written += os.pwrite(file.fileno(), bytes(_GROWTH - written), size + written)
    except OSError as error:
        return error
    return None
