"""What a writer says it sent, beside what of it arrived: the difference is under way, or lost (ADR 0031).

Everything a writer of ours sends has a running number, and now and then it says its totals. What it says counts once
nothing with a lower number is waited for anymore: until then what has not arrived is under way.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

from otel_ml_service.aggregation.observation import Totals

__all__ = ["ONE_EVENT", "Amount", "Ledger", "Place"]

Place = tuple[str, int]
"""(axis, step)."""


class Amount(NamedTuple):
    """Metric points, values of the user in them, and log records."""

    points: int = 0
    values: int = 0
    events: int = 0

    def __add__(self, other: object) -> Amount:
        """Return both together."""
        assert isinstance(other, Amount)
        # Half the price of `Amount(…)`, whose `__new__` is Python: each message is counted.
        return tuple.__new__(Amount, (self[0] + other[0], self[1] + other[1], self[2] + other[2]))


NOTHING = Amount()
ONE_EVENT = Amount(events=1)


class Ledger:
    """The account of one writer.

    Attributes:
        said: the newest totals before which nothing is waited for, and their running number.
        before, since: what arrived with lower running numbers than those, and what with higher ones.
        ahead: the same by running number, of what lies beyond a gap.
        said_ahead: totals that lie beyond a gap, and where the writer was then.
        floor: up to here everything is in `before` and `since`.
        place: where the writer was when it said `said`.
        steps: axis, and the first and last step between which something is missing.
        begins_anew: what arrived earlier is not known: all of it is taken to have, up to the first totals.
    """

    __slots__ = ("ahead", "before", "begins_anew", "floor", "place", "said", "said_ahead", "since", "steps")

    def __init__(self, *, begins_anew: bool = False) -> None:
        self.begins_anew = begins_anew
        self.said: tuple[int, Totals] = (0, Totals(0, 0, 0, 0))
        self.before = self.since = NOTHING
        self.ahead: dict[int, Amount] = {}
        self.said_ahead: dict[int, tuple[Totals, Place | None]] = {}
        self.floor = 0
        self.place: Place | None = None
        self.steps: tuple[str, int, int] | None = None

    def take(self, seq: int, amount: Amount, floor: int) -> None:
        """Count what arrived with a running number; everything up to `floor` has, or is no longer waited for."""
        # Three accounts, because totals are compared with what arrived *before* them: what is older than the newest
        # totals (late, but it counts against them), what is newer, and what lies beyond a gap and may still be
        # overtaken.
        if seq <= self.said[0]:
            self.before += amount
        elif seq <= self.floor or (seq <= floor and not self.said_ahead):
            self.since += amount  # at once: no totals stand in between that are still to be believed
        else:
            self.ahead[seq] = self.ahead.get(seq, NOTHING) + amount
        if floor != self.floor:
            self.settle(floor)

    def hear(self, seq: int, totals: Totals, place: Place | None) -> None:
        """Note totals that the writer sent as `seq`; `settle` believes them."""
        if seq > self.floor:  # of older ones it is no longer known what arrived before them
            self.said_ahead[seq] = totals, place

    def settle(self, floor: int) -> None:
        """Go on to `floor`."""
        self.floor = max(self.floor, floor)
        if not self.ahead and not self.said_ahead:
            return
        # In order of the running numbers: each total is believed with exactly the points that were sent before it.
        for seq in sorted(seq for seq in {*self.ahead, *self.said_ahead} if seq <= self.floor):
            self.since += self.ahead.pop(seq, NOTHING)
            if seq in self.said_ahead:
                self._believe(seq, *self.said_ahead.pop(seq))

    @property
    def is_short(self) -> bool:
        """Whether something is missing that is no longer waited for."""
        totals, before = self.said[1], self.before
        return totals.points > before[0] or (totals.events is not None and totals.events > before[2])

    @property
    def arrived(self) -> Amount:
        """Everything that arrived."""
        return sum(self.ahead.values(), self.before + self.since)

    @property
    def recorded(self) -> int:
        """Values the user recorded, as far as is known: what arrived since the newest totals is not in these."""
        newest = max((totals.recorded for totals, _ in self.said_ahead.values()), default=self.said[1].recorded)
        return max(newest, self.arrived.values + self.missing(at_end=True).values)

    def missing(self, *, at_end: bool) -> Amount:
        """Return what was sent and will not be waited for anymore.

        Args:
            at_end: nor is what was sent before the newest totals that arrived.
        """
        if at_end and self.said_ahead:
            # On a copy: at the end of the run one asks what would be missing if nothing more came, and the run may be
            # reopened.
            settled = copy(self)
            settled.ahead, settled.said_ahead = {**self.ahead}, {**self.said_ahead}
            settled.settle(max(self.said_ahead))
            return settled.missing(at_end=False)
        return _difference(self.said[1], self.before)

    def state(self) -> list[object]:
        """Return plain data for `restore`."""
        ahead = [[seq, *amount] for seq, amount in self.ahead.items()]
        said_ahead = [[seq, [*totals], place] for seq, (totals, place) in self.said_ahead.items()]
        seq, totals = self.said
        arrived = [[*self.before], [*self.since], ahead]
        return [seq, [*totals], *arrived, said_ahead, self.floor, self.place, self.steps, self.begins_anew]

    def restore(self, state: list[Any]) -> None:
        """Continue from what `state()` returned."""
        seq, totals, before, since, ahead, said_ahead, self.floor, place, steps, self.begins_anew = state
        self.said = seq, Totals(*totals)
        self.before, self.since = Amount(*before), Amount(*since)
        self.ahead = {number: Amount(*amount) for number, *amount in ahead}
        self.said_ahead = {
            number: (Totals(*said), None if where is None else (where[0], where[1]))
            for number, said, where in said_ahead
        }
        self.place = None if place is None else (place[0], place[1])
        self.steps = None if steps is None else (steps[0], steps[1], steps[2])

    def _believe(self, seq: int, totals: Totals, place: Place | None) -> None:
        was_missing = self.missing(at_end=False)
        self.said = seq, totals
        self.before, self.since = self.before + self.since, NOTHING
        # The state of this engine was lost, so what arrived earlier is unknown. Saying that all of it is lost would be
        # a lie about data that is in the run.
        if self.begins_anew:
            self.before, self.begins_anew = _everything(totals), False
        if place is not None and self.missing(at_end=False).points > was_missing.points:
            self._note_steps(place)
        self.place = place or self.place

    def _note_steps(self, place: Place) -> None:
        axis, last = place
        first = self.place[1] if self.place is not None and self.place[0] == axis else 0
        if self.steps is not None and self.steps[0] == axis:
            first, last = min(first, self.steps[1]), max(last, self.steps[2])
        self.steps = axis, min(first, last), max(first, last)


def _everything(totals: Totals) -> Amount:
    return Amount(totals.points, totals.points if totals.values is None else totals.values, totals.events or 0)


def _difference(totals: Totals, arrived: Amount) -> Amount:
    """Return what of the totals did not arrive; of a writer that does not say its values, a point is one."""
    points = max(0, totals.points - arrived.points)
    # Points decide whether something is missing, values say how much of it (docs/protocol.md §6.5).
    values = points if totals.values is None else max(0, totals.values - arrived.values) if points else 0
    events = 0 if totals.events is None else max(0, totals.events - arrived.events)
    return Amount(points, values, events)
