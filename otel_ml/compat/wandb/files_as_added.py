"""Files of an artifact as they were when they were added: W&B copies them then, and programs rewrite them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from otel_ml._internal.events.temporary_folder import TemporaryFolder

__all__ = ["FilesAsAdded"]

_COPIED = 4 * 2**20
"""Bytes of a file that is copied; a larger one, a checkpoint say, is linked, which costs no time and no room."""

_Version = tuple[int, int, int]
"""Inode, size and time of the last change of a file."""


@dataclass(frozen=True, slots=True)
class _Added:
    """A file: where it was, which content it had, and the copy of it, if there is one."""

    file: Path
    version: _Version
    kept: Path | None

    def is_as_added(self) -> bool:
        """Whether it is still there, and not written since."""
        with suppress(OSError):
            return _version(self.file) == self.version
        return False


class FilesAsAdded:
    """Copies of files, in a folder of their own.

    A larger file is a link: its content stays where the file is deleted or replaced, and not where it is written over.
    Of a larger file on another disk nothing is kept: it is taken from where it is.
    """

    def __init__(self) -> None:
        self._folder: TemporaryFolder | None = None
        self._copies = 0
        self._added: dict[str, _Added] = {}

    def add(self, place: str, path: Path) -> None:
        """Keep a file, or all files of a folder; what cannot be read is said where it is recorded."""
        for file in _files(path):
            with suppress(OSError):
                # The version first: a file that is written while it is copied has changed then, and the copy counts.
                self._added[_below(place, path, file)] = _Added(file, _version(file), self._kept(file))

    def now(self, place: str, path: Path) -> list[tuple[str, Path]]:
        """Return where what was added is by now, and its place: the path itself, if nothing there has changed."""
        # A file is found by its place and its path, since the same place may be added again from elsewhere; of a folder
        # all that was below it.
        added = {
            at: one
            for at, one in self._added.items()
            if (at == place and one.file == path)
            or (at.startswith(f"{place}/" if place else "") and path in one.file.parents)
        }
        is_as_added = all(one.is_as_added() for one in added.values())
        # Unchanged, and nothing has come into the folder since: it is recorded as one, without a copy.
        if not added or (is_as_added and list(_files(path)) == sorted(one.file for one in added.values())):
            return [(place, path)]
        return [(at, one.file if one.kept is None or one.is_as_added() else one.kept) for at, one in added.items()]

    def forget(self) -> None:
        """Let go of the copies, which are removed as soon as nobody has to read them: the files are what is there."""
        self._added.clear()
        self._folder = None

    def _kept(self, file: Path) -> Path | None:
        if self._folder is None:
            self._folder = TemporaryFolder("added")
        kept = self._folder.path / str(self._copies)
        # Numbered: files of one name may be added from several folders.
        self._copies += 1
        if file.stat().st_size <= _COPIED:
            shutil.copy2(file, kept)
        else:
            with suppress(OSError):  # another disk
                os.link(file, kept)
        return kept if kept.exists() else None


def _files(path: Path) -> Iterator[Path]:
    yield from sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _version(file: Path) -> _Version:
    # The inode, as a file that is replaced, by a rename, may have the size and the time of the one before.
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _below(place: str, folder: Path, file: Path) -> str:
    """Return the place of a file in a folder that is at `place`; of the file that was added itself, that."""
    if file == folder:
        return place
    inside = file.relative_to(folder).as_posix()
    return f"{place}/{inside}" if place else inside
