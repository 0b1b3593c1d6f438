"""The files in which each process of the disturbed job writes down what it is about to record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Begun(NamedTuple):
    """A step that a process has begun; `at` is monotonic."""

    at: float
    step: int


def file_of(folder: Path, role: str, rank: int, pid: int) -> Path:
    return folder / f"{role}-{rank}-{pid}.steps"


def begun_in(file: Path) -> Iterator[Begun]:
    """Yield what a process wrote down; a last line that was torn is none."""
    if not file.exists():
        return
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            at, step = line.split()
            yield Begun(float(at), int(step))


def reached_in(folder: Path, role: str) -> int:
    """Return the newest step that any process of `role` has begun, or -1."""
    return max((last_in(file) for file in folder.glob(f"{role}-*.steps")), default=-1)


def last_in(file: Path) -> int:
    """Return the last step that a process has begun, or -1."""
    return max((begun.step for begun in begun_in(file)), default=-1)
