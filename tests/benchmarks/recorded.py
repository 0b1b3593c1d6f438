"""The last recorded figures: `docs/performance.json`, and what has become worse since.

Each part carries its own date, size and machine, so that one measured elsewhere (on a GPU) stands beside the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Figure, Found

__all__ = ["PATH", "Part", "Recorded", "worse"]

PATH = Path(__file__).resolve().parents[2] / "docs" / "performance.json"
WORSE = 0.10
"""What is said; less is what a machine does from day to day."""


@dataclass(frozen=True)
class Part:
    """One part of the harness, as it was last measured.

    Attributes:
        date: `YYYY-MM-DD`.
        size: see `sizes`.
        load: cores that others used when the harness began.
        commit: of the code that was measured, where it says so.
        behind: digests of that code, by its parts.
    """

    date: str
    size: str
    load: float
    seconds: float
    machine: Mapping[str, str]
    found: Found
    commit: str = ""
    behind: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_shared(self) -> bool:
        """Whether others used the machine, so that no time means anything."""
        return self.load > 0.25 * int(self.machine["cores"])

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON's types; what it does not say is left out."""
        said = {name: value for name, value in self.__dict__.items() if value not in ("", {})}
        return {**said, "found": self.found.as_json()}


@dataclass(frozen=True)
class Recorded:
    """All parts, by name."""

    parts: Mapping[str, Part]

    @classmethod
    def read(cls, path: Path = PATH) -> Recorded:
        """Read what was recorded; nothing where there is no file."""
        if not path.exists():
            return cls({})
        parts: Mapping[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        return cls({name: Part(**{**part, "found": Found.of_json(part["found"])}) for name, part in parts.items()})

    def write(self, path: Path = PATH) -> None:
        """Write it, one line a figure, so that a diff can be read."""
        parts = {name: part.as_json() for name, part in self.parts.items()}
        path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @property
    def figures(self) -> dict[str, Figure]:
        """Return every figure by `part/figure`."""
        return {
            f"{name}/{figure}": value
            for name, part in self.parts.items()
            for figure, value in part.found.figures.items()
        }


def worse(before: Recorded, now: Recorded) -> Iterator[str]:
    """Yield a line for each figure that is more than 10 % worse than recorded, by more than its spread.

    Of parts that were recorded on another machine only ratios and shares are compared.
    """
    for name, part in now.parts.items():
        old = before.parts.get(name)
        if old is None:
            continue
        is_same = old.machine.get("processor") == part.machine.get("processor") and (
            old.machine["cores"] == part.machine["cores"]
        )
        for figure, value in part.found.figures.items():
            known = old.found.figures.get(figure)
            if known is not None and (is_same or value.unit in {"1", "%"}) and is_worse(known, value):
                yield f"{name}/{figure}: {known.value:.4g} → {value.value:.4g} {value.unit}"


def is_worse(before: Figure, now: Figure) -> bool:
    """Whether a figure is more than 10 % worse, and the spreads of both do not meet."""
    if before.value is None or now.value is None or now.better == "neither":
        return False
    if None not in (before.low, before.high, now.low, now.high) and (
        before.low <= now.high and now.low <= before.high  # type: ignore[operator]
    ):
        return False
    if now.better == "more":
        return now.value < before.value * (1 - WORSE)
    return now.value > before.value + abs(before.value) * WORSE
