"""Folders into which otel_ml writes what it records as files: there until the last of them is read."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from weakref import WeakValueDictionary

__all__ = ["TemporaryFolder"]


class TemporaryFolder:
    """A folder of the process that makes it. Who lets go of it last removes it: the caller, or who reads its files.

    What `log_artifact()` is given from in here holds it until it is read, or nobody will.

    Attributes:
        path: where it is.
    """

    def __init__(self, kind: str) -> None:
        self._made_by = 0
        self.path: Path = Path(tempfile.mkdtemp(prefix=f"otel-ml-{kind}-"))
        self._made_by = os.getpid()
        _LIVING[self.path] = self

    # Not `weakref.finalize`, which does nothing in the last moments of a process, in which files are still read.
    def __del__(self) -> None:
        self.remove()

    @staticmethod
    def around(path: Path) -> TemporaryFolder | None:
        """Return the folder of this process that a path is in; None where it is in none."""
        found = (_LIVING.get(folder) for folder in (path, *path.parents)) if _LIVING else ()
        return next((folder for folder in found if folder is not None and folder.is_of_this_process), None)

    @property
    def is_of_this_process(self) -> bool:
        """Whether it is there, and not of a process that this is a fork of: that one removes it when it likes."""
        return self._made_by == os.getpid()

    def remove(self) -> None:
        """Remove it now."""
        if self.is_of_this_process:
            self._made_by = 0
            shutil.rmtree(self.path, ignore_errors=True)


_LIVING: WeakValueDictionary[Path, TemporaryFolder] = WeakValueDictionary()


@atexit.register
def _remove_all() -> None:
    """Remove what somebody still holds when the process ends."""
    for folder in list(_LIVING.values()):
        folder.remove()
