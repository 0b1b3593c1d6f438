"""The files in which each process of the disturbed job writes down what it is about to record."""

from __future__ import annotations

from pathlib import Path

AXES = {"trainer": "step", "generator": "rollout"}


def file_of(folder: Path, role: str, rank: int, pid: int) -> Path:
    return folder / f"{role}-{rank}-{pid}.steps"


def reached_in(folder: Path, role: str) -> int:
    """Return the newest step that any process of `role` has begun, or -1."""
    return max((last_in(file) for file in folder.glob(f"{role}-*.steps")), default=-1)


def last_in(file: Path) -> int:
    """Return the last step that a process has begun, or -1."""
    lines = file.read_text().splitlines() if file.exists() else []
    return int(lines[-1].split()[1]) if lines else -1
