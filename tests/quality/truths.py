"""What is the matter in a job, and the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["STEPS", "Job", "Pausing", "Slow", "SlowPlace", "Truth", "Uneven", "Varying"]

Floats = npt.NDArray[np.float64]

STEPS = 80


@dataclass(frozen=True)
class Slow:
    """One rank that works longer by `share` in `phases`, from `first` to before `end`."""

    rank: int
    phases: tuple[str, ...]
    share: float
    first: int
    end: int

    @property
    def place(self) -> str:
        return f"rank {self.rank}"

    @property
    def ranks(self) -> tuple[int, ...]:
        return (self.rank,)

    def at(self, step: int) -> float:
        return self.share if self.first <= step < self.end else 0.0

    @property
    def is_to_be_found(self) -> bool:
        return True


@dataclass(frozen=True)
class SlowPlace:
    """All ranks of a place work longer by `share` in `phases`, from `first` to before `end`."""

    place: str
    ranks: tuple[int, ...]
    phases: tuple[str, ...]
    share: float
    first: int
    end: int
    is_to_be_found: bool = True

    def at(self, step: int) -> float:
        return self.share if self.first <= step < self.end else 0.0


@dataclass(frozen=True)
class Pausing:
    """The job stands still now and then: first in step `first`, and in the step before `end` last.

    That a long step was a pause shows in the next one.
    """

    place: str
    phases: tuple[str, ...]
    first: int
    end: int
    is_to_be_found: bool = True

    def at(self, step: int) -> float:
        return 0.0


@dataclass(frozen=True)
class Uneven:
    """A stage whose work is larger by `share` than that of the others, from `first` to before `end`."""

    stage: int
    share: float
    first: int = 0
    end: int = STEPS
    phases: tuple[str, ...] = ("",)

    @property
    def place(self) -> str:
        return f"stage {self.stage}"

    def at(self, step: int) -> float:
        return self.share if self.first <= step < self.end else 0.0

    @property
    def is_to_be_found(self) -> bool:
        """Around a tenth, which is the threshold, either is right."""
        return self.share >= 0.15


@dataclass(frozen=True)
class Varying:
    """Times go with the lengths of sequences, and nobody is slow."""

    place: str = "nobody"
    first: int = 0
    end: int = STEPS
    phases: tuple[str, ...] = ()
    is_to_be_found: bool = True

    def at(self, step: int) -> float:
        return 0.0


Truth = Slow | SlowPlace | Uneven | Varying | Pausing


@dataclass(frozen=True)
class Job:
    """Attributes:
    stages: of each rank, empty where there are none; `hosts`, and `topologies`, the same.
    slow: what is the matter.
    seconds: yields [ranks, phases] of each step; NaN where a rank has no such timer.
    """

    kind: str
    seed: int
    phases: tuple[str, ...]
    stages: tuple[int | None, ...]
    slow: tuple[Truth, ...]
    seconds: Callable[[], Iterator[Floats]]
    hosts: tuple[str, ...] = ()
    topologies: tuple[Mapping[str, int], ...] = ()
