"""The files of one run: `part-<first seq>-<last seq>.parquet`, each written whole before it has its name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Part", "Parts"]

_NAME = re.compile(r"part-(\d+)-(\d+)\.parquet")
_UNFINISHED = ".unfinished"  # not `*.parquet`: nobody takes it for data


@dataclass(frozen=True, slots=True)
class Part:
    """One file and the range of records in it; of some there may be no row."""

    path: Path
    first: int
    last: int


class Parts:
    """The parts of a folder, in the order of `seq`; they never overlap.

    A part is a merge of others, or it begins after the last one. So whatever lies inside a wider part is what a
    merge has left when it was killed, and is removed by `open`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: list[Part] = []

    def open(self) -> None:
        """Make the folder, and remove what a killed predecessor left unfinished."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob(f"*{_UNFINISHED}"):
            path.unlink()
        found = [
            Part(path, int(match[1]), int(match[2]))
            for path in self._folder.iterdir()
            if (match := _NAME.fullmatch(path.name)) is not None
        ]
        self._parts = []
        # Of parts that begin alike the widest one comes first, so that what it holds is found to be inside of it.
        for part in sorted(found, key=lambda part: (part.first, -part.last)):
            if self._parts and part.last <= self._parts[-1].last:
                part.path.unlink()
            else:
                self._parts.append(part)

    @property
    def last_seq(self) -> int:
        """The last record that has a row; 0 where there is none."""
        return self._parts[-1].last if self._parts else 0

    @property
    def is_intact(self) -> bool:
        """Whether the folder and the newest part are there; the others have gone with it, or on purpose."""
        return (self._parts[-1].path if self._parts else self._folder).exists()

    def add(self, first: int, last: int, write: Callable[[Path], None]) -> None:
        """Add a part; it is there whole or not at all."""
        self._parts.append(self._written(first, last, write))

    def unmerged(self, width: int) -> Sequence[Part]:
        """Return the parts at the end that are narrower than `width` records."""
        tail: list[Part] = []
        for part in reversed(self._parts):
            # From the end up to the first wide one: so a row is written again a few times, however long the run is, and
            # parts stay in their order.
            if part.last - part.first >= width:
                break
            tail.append(part)
        return tail[::-1]

    def merge(self, parts: Sequence[Part], write: Callable[[Path], None]) -> None:
        """Put one part in the place of `parts`, which are at the end, and of what was between them and is gone."""
        # First the new one, then the old ones go: what a kill leaves of them `open` removes.
        merged = self._written(parts[0].first, parts[-1].last, write)
        self._parts = [*(part for part in self._parts if part.last < merged.first), merged]
        for part in parts:
            part.path.unlink(missing_ok=True)

    def _written(self, first: int, last: int, write: Callable[[Path], None]) -> Part:
        path = self._folder / f"part-{first:012d}-{last:012d}.parquet"
        unfinished = path.with_suffix(_UNFINISHED)
        try:
            write(unfinished)
            # Before it has its name: after a power cut a file of that name might be empty.
            with unfinished.open("rb+") as file:
                os.fsync(file.fileno())
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return Part(path, first, last)
