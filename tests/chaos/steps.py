"""The files in which each process of the disturbed job writes down what it is about to record, and what it has.

`<monotonic s> <step>` before, `<monotonic s> <step> recorded` after: a thread may wait for a core in between, and what
it was about to record then is not recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECORDED = "recorded"


class Begun(NamedTuple):
    """A step that a process has begun; times are monotonic.

    Attributes:
        at: before it recorded anything.
        step: which one.
        recorded_at: after it had recorded everything; where it did not come to say so, never.
    """

    at: float
    step: int
    recorded_at: float = math.inf


def file_of(folder: Path, role: str, rank: int, pid: int) -> Path:
    return folder / f"{role}-{rank}-{pid}.steps"


def begun_in(file: Path) -> Iterator[Begun]:
    """Yield what a process wrote down; a last line that was torn is none."""
    begun: Begun | None = None
    for line in file.read_text().splitlines(keepends=True) if file.exists() else []:
        if not line.endswith("\n"):
            break
        at, step, *more = line.split()
        if begun is not None and more:
            begun = begun._replace(recorded_at=float(at))
            continue
        if begun is not None:
            yield begun
        begun = Begun(float(at), int(step))
    if begun is not None:
        yield begun


def reached_in(folder: Path, role: str) -> int:
    """Return the newest step that any process of `role` has begun, or -1."""
    return max((last_in(file) for file in folder.glob(f"{role}-*.steps")), default=-1)


def last_in(file: Path) -> int:
    """Return the last step that a process has begun, or -1."""
    return max((begun.step for begun in begun_in(file)), default=-1)
