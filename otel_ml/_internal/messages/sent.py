"""What a writer has numbered of a run, and what is left where nobody waits for the end of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Left", "Sent"]


@dataclass(frozen=True, slots=True)
class Left:
    """What a run has when nobody waits any longer for its background thread to end it.

    Attributes:
        recorded: values that were accepted.
        written: values that were in the spool.
        unwritten: values that were not.
        on_device: values that a device has not given.
        events: texts, tables and files that were asked for and not looked at.
        dropped: values that were not accepted or lost before, by reason.
    """

    recorded: int
    written: int
    unwritten: int
    on_device: int
    events: int
    dropped: Mapping[str, int]


@dataclass(slots=True)
class Sent:
    """What this writer has numbered so far: the service compares it with what arrived (ADR 0031).

    Attributes:
        points: metric points, without those of the protocol itself.
        values: of the user, in those points.
        events: log records, without the shutdown message.
        written: points and values of these that are in the spool.
        left: what is there to be said where nobody has waited for the end; None otherwise.
    """

    points: int = 0
    values: int = 0
    events: int = 0
    written: tuple[int, int] = (0, 0)
    left: Left | None = None

    def note_written(self) -> None:
        """Know that all that has a number is in the spool."""
        self.written = self.points, self.values
