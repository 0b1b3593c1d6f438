"""Final values that many processes say become those of the run: the lowest (role, rank) wins (docs/protocol.md §2.12).

Rank 0's value is published at once, and whenever it says another one. What the others said is decided at the end of the
run: only then it is known whether it differs from what the lowest of them says, in whatever order they were heard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_ml.wire.published_name import sanitized
from otel_ml_exporters.records import Summary
from otel_ml_service.aggregation.naming import changed, item_name
from otel_ml_service.aggregation.observation import Event
from otel_ml_service.aggregation.output import Output

__all__ = ["Summaries"]

Rank = tuple[str, int]


@dataclass(slots=True)
class _Final:
    """One final value.

    Attributes:
        said: (role, rank) → (nanoseconds, value) of its newest word; after the end of the run the owner's only.
        shown: what was published under the name.
        apart: ranks that have a name of their own.
        is_decided: whether nobody said anything since the last end of the run.
    """

    said: dict[Rank, tuple[int, float]] = field(default_factory=dict)
    shown: float | None = None
    apart: set[int] = field(default_factory=set)
    is_decided: bool = False

    @property
    def owner(self) -> Rank:
        return min(self.said)

    def hear(self, who: Rank, time_ns: int, value: float) -> None:
        """Take the newest word of a rank: what counts at the end is open again."""
        self.said[who] = (time_ns, value)
        self.is_decided = False

    def show(self, value: float) -> float:
        """Publish a value under the name."""
        self.shown = value
        return value

    def decide(self) -> None:
        """Keep the owner's word only."""
        owner = self.owner
        self.said = {owner: self.said[owner]}
        self.is_decided = True


class Summaries:
    """Remembers who said what, up to `most` words; further ones are published at once, with their rank in the name.

    Attributes:
        changed: whether anything changed since it was committed.
    """

    def __init__(self, output: Output, most: int = 100_000) -> None:
        self._output = output
        self._most = most
        self._finals: dict[str, _Final] = {}
        self._held = 0
        self.changed = False

    def note_committed(self) -> None:
        """Note that every word is committed."""
        self.changed = False

    def take(self, event: Event) -> None:
        """Publish what rank 0 says, and keep what others say."""
        if not isinstance(event.body, Mapping):
            raise TypeError(f"expected a mapping, got {type(event.body).__name__}")
        writer = event.writer
        at_once: dict[str, float] = {}
        for said, value in event.body.items():
            if not isinstance(value, (int, float)):
                continue
            if sentence := changed(str(said)):
                self._output.say_first("name-changed", sentence)
            # As rank 0 has it: what other ranks say is compared under that name.
            name = item_name(writer.role, None, str(said), 0, with_role=writer.with_role)
            if not self._keep(name, (writer.role, writer.rank), event.time_ns, float(value)):
                at_once[_apart(name, writer.rank) if writer.rank else name] = float(value)
            elif writer.rank == 0 and self._is_news(self._finals[name], event):
                at_once[name] = self._finals[name].show(float(value))
        if at_once:
            self._output.emit(Summary, time=event.time_ns / 1e9, values=at_once)

    def decide(self) -> None:
        """Publish at the end of the run what was held back: all values that differ from the owner's."""
        values: dict[str, float] = {}
        newest = 0
        for name, final in sorted(self._finals.items()):
            if not final.is_decided:
                newest = max(newest, *(time_ns for time_ns, _ in final.said.values()))
                values |= self._decided(name, final)
        if values:
            self._output.emit(Summary, time=newest / 1e9, values=values)

    def state(self) -> list[object]:
        """Return everything as plain data."""
        return [
            [
                name,
                final.shown,
                sorted(final.apart),
                final.is_decided,
                [[*who, *word] for who, word in final.said.items()],
            ]
            for name, final in self._finals.items()
        ]

    def restore(self, state: list[Any]) -> None:
        """Read what `state` returned."""
        for name, shown, apart, is_decided, words in state:
            said = {(role, rank): (time_ns, value) for role, rank, time_ns, value in words}
            self._finals[name] = _Final(said, shown, set(apart), is_decided)
            self._held += len(said)

    def _keep(self, name: str, who: Rank, time_ns: int, value: float) -> bool:
        """Note a word unless it is older than what is known; return whether there was room for it."""
        final = self._finals.get(name)
        if final is None or who not in final.said:
            if self._held >= self._most:
                return False
            self._held += 1
            final = self._finals.setdefault(name, _Final())
        # Older than its last word: there is room, and nothing to be kept.
        elif final.said[who][0] > time_ns:
            return True
        final.hear(who, time_ns, value)
        self.changed = True
        return True

    @staticmethod
    def _is_news(final: _Final, event: Event) -> bool:
        """Whether the event is the newest word of the one whose value counts."""
        who = (event.writer.role, event.writer.rank)
        return final.owner == who and final.said[who][0] == event.time_ns

    def _decided(self, name: str, final: _Final) -> dict[str, float]:
        values: dict[str, float] = {}
        owner = final.owner
        value = final.said[owner][1]
        for who, (_, other) in sorted(
            final.said.items(), reverse=True
        ):  # of two roles that share a name the lower wins
            if who != owner and (not _same(other, value) or who[1] in final.apart):
                final.apart.add(who[1])
                values[_apart(name, who[1])] = other
        if final.shown is None or not _same(final.shown, value):
            values[name] = final.show(value)
        # `decide()` keeps the owner's word of them.
        self._held -= len(final.said) - 1
        final.decide()
        self.changed = True
        return values


def _apart(name: str, rank: int) -> str:
    return sanitized(f"{name}/rank_{rank}")


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
