"""What came out of the originals' suites when they were run last: kept in `figures.json`, written by `run.py` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

__all__ = ["FIGURES", "Figures", "kept", "written"]

FIGURES = Path(__file__).with_name("figures.json")


@dataclass(frozen=True)
class Figures:
    """Of one suite.

    Attributes:
        commit: of the original.
        passed: tests.
        run: tests, without those that were skipped and those that the suite does not count.
        failed: test → first line of what it said.
        translated: files that a person has translated, as `run.py` says.
        left_out: tests of the original that have not been translated under their names.
    """

    commit: str
    passed: int
    run: int
    failed: Mapping[str, str] = field(default_factory=dict)
    translated: Sequence[str] = ()
    left_out: Sequence[str] = ()


def kept(path: Path = FIGURES) -> Mapping[str, Figures]:
    """Return suite → what came out."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {name: Figures(**one) for name, one in found.items()}


def written(path: Path, figures: Mapping[str, Figures]) -> None:
    """Keep what came out, sorted, so that a change is a small one."""
    found = {name: asdict(one) for name, one in sorted(figures.items())}
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
