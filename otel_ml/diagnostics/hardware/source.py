"""What a source of readings is: one library that looks at one kind of hardware; and its counters, which only grow."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple, Protocol

__all__ = ["Counters", "Reading", "Source", "SourceLostError", "UnavailableError"]


class Reading(NamedTuple):
    """One value of one component.

    Attributes:
        name: one of `MEASURES`.
        attributes: what tells components of one host apart; `host.name` is added where it is missing.
    """

    name: str
    value: float
    attributes: Mapping[str, str]


class UnavailableError(Exception):
    """This hardware cannot be looked at here; the text says why, without a full stop."""


class SourceLostError(Exception):
    """It could be looked at, and no longer can; the text says why, without a full stop."""


class Source(Protocol):
    """An opened library. One thread uses it."""

    @property
    def facts(self) -> Mapping[str, object]:
        """What does not change: models, identifiers, driver; recorded as params."""

    def read(self) -> Iterator[Reading]:
        """Yield what can be read now; what the hardware does not have is left out.

        Raises:
            SourceLostError: nothing can be read anymore.
        """

    def close(self) -> None:
        """Let go of the library."""


class Counters:
    """Remembers the newest reading of each counter.

    Examples:
        >>> counters = Counters()
        >>> counters.grown("energy", 100), counters.grown("energy", 130), counters.grown("energy", 5)
        (None, 30, None)
    """

    def __init__(self) -> None:
        self._newest: dict[Hashable, float] = {}

    def grown(self, key: Hashable, reading: float) -> float | None:
        """Return the increase; None at the first reading, and where the counter began anew: that is unknown."""
        before = self._newest.get(key)
        # Also where it went back: the counter goes on from there.
        self._newest[key] = reading
        return None if before is None or reading < before else reading - before
