"""What a backend holds of a run, read in another process by its own library."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.cases import Case
from tests.contract.reading import answer_of
from tests.surroundings import SOURCES

__all__ = ["RUN_ID", "Stored", "environment", "read"]

RUN_ID = "01JCONTRACT"

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Stored:
    """The reader's answer; see `tests.contract.readers`."""

    scalars: list[tuple[str, str, int, float]]
    attempts: list[int | None]
    amendments: list[tuple[str, str, int, float]] = field(default_factory=list)
    other: dict[str, object] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """Return the environment of a process that can import the project and these tests."""
    return {**os.environ, "PYTHONPATH": SOURCES}


def read(case: Case, run_dir: Path, run_id: str) -> Stored:
    """Run the case's reader on a run's folder."""
    answer = answer_of(case.reader, run_dir, run_id, environment())
    scalars = answer.pop("scalars")
    amendments = answer.pop("amendments", [])
    return Stored(
        scalars=[(name, axis, step, float(value)) for name, axis, step, value, _ in scalars],
        attempts=[attempt for *_, attempt in scalars],
        amendments=[(name, axis, step, float(value)) for name, axis, step, value in amendments],
        other=answer,
    )
