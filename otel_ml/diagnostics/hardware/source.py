"""What a source of readings is: one library that looks at one kind of hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

__all__ = ["Reading", "Source", "SourceLostError", "UnavailableError"]


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
