"""The steps of one role on one axis: open ones, closed ones that are kept for late data, and what was learned.

::

    StepStream (role, axis) ── Attempt 0 ── StepWindow of step 0, 1, 2, …
                           └── Attempt 1 ── StepWindow of step 1, 2, …
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field

from otel_ml_service.aggregation.intervals import IntervalSet
from otel_ml_service.aggregation.reductions import Reductions
from otel_ml_service.aggregation.step_window import StepWindow, StepWindows

__all__ = ["PUBLISHED", "Attempt", "StepStream", "StepStreams", "Tally"]

PUBLISHED = ("amended", "duplicate", "overflow", "quantile_coarse", "steps_redone", "superseded", "too_late")
"""Counts that are published in the run, as `otel_ml/<name>`, in the next row after they changed."""

INTERVALS = 8
"""Closes whose distance says how long a quiet member is waited for."""

MAX_KNOWN = 1_024
"""Intervals of steps that are known to exist; who was last heard below them has passed over none."""


@dataclass(slots=True)
class Tally:
    """What happened to the points of one role and axis; `published` is what the run was told of it."""

    received: int = 0
    closed: int = 0
    ignored: int = 0
    amended: int = 0
    duplicate: int = 0
    overflow: int = 0
    quantile_coarse: int = 0
    steps_redone: int = 0
    superseded: int = 0
    too_late: int = 0
    published: dict[str, int] = field(default_factory=dict)

    def receive(self, points: int) -> None:
        """Count points that arrived, duplicates too."""
        self.received += points

    def repeat(self, points: int) -> None:
        """Count points that had arrived before."""
        self.duplicate += points

    def ignore(self, points: int) -> None:
        """Count points that nobody wants."""
        self.ignored += points

    def leave_out(self, points: int) -> None:
        """Count points for whose series there is no room."""
        self.overflow += points

    def supersede(self, points: int) -> None:
        """Count points that a later attempt or incarnation did again."""
        self.superseded += points

    def refuse(self, points: int) -> None:
        """Count points that came too late."""
        self.too_late += points

    def close(self, points: int, quantile_coarse: int = 0) -> None:
        """Count points that are published, and the quantiles of them that are coarse."""
        self.closed += points
        self.quantile_coarse += quantile_coarse

    def correct(self, values: int) -> None:
        """Count values that were published, and are published again with late points in them."""
        self.amended += values

    def redo_step(self) -> None:
        """Count a step that an earlier attempt had closed."""
        self.steps_redone += 1

    def counts(self) -> dict[str, int]:
        """Return every count by name."""
        return {name: getattr(self, name) for name in (*PUBLISHED, "received", "closed", "ignored")}

    def news(self) -> dict[str, int]:
        """Return the counts that are to be published and changed since this was asked last."""
        fresh = {name: getattr(self, name) for name in PUBLISHED}
        fresh = {name: count for name, count in fresh.items() if count != self.published.get(name, 0)}
        self.published.update(fresh)
        return fresh


class Attempt:
    """One attempt's steps of a stream.

    Attributes:
        ordinal: which attempt of the job it is; 0 is the first.
        open: step → its window, while it is not closed.
        order: the open steps, ascending.
        retained: step → its window, after it closed and while its fold state is in memory.
        members: writers that ever delivered here.
        known: steps that ever held anything.
        last_closed: the highest closed step.
        horizon: of closed steps up to here the fold state may be on the disk only, or gone.
        unknown: of closed steps up to here that are not on the disk, it is not known what was exported.
        closes: how many windows closed.
        closed_at: active time at which the last one did.
        intervals: active seconds between the last eight closes.
        begins: the step at which it opened.
        fence: the step at which a later attempt began: from there on nothing is taken here anymore.
        watch: a writer known to hold the oldest open window; while it does, nobody else need be asked.
        due: active time at which the oldest open window has to be looked at again.
    """

    __slots__ = (
        "_open",
        "_retained",
        "begins",
        "closed_at",
        "closes",
        "due",
        "fence",
        "horizon",
        "intervals",
        "known",
        "last_closed",
        "members",
        "number",
        "open",
        "order",
        "ordinal",
        "retained",
        "stream",
        "unknown",
        "watch",
    )

    def __init__(self, number: int, stream: StepStream, ordinal: int) -> None:
        self.number = number
        self.stream = stream
        self.ordinal = ordinal
        self._open, self._retained = StepWindows(), StepWindows()
        # The dictionaries themselves: `StepWindows` alone changes them, and with them what they weigh.
        self.open: Mapping[int, StepWindow] = self._open.windows
        self.retained: Mapping[int, StepWindow] = self._retained.windows
        self.order: list[int] = []
        self.members: list[int] = []
        self.known = IntervalSet()
        self.last_closed: int | None = None
        self.horizon = self.unknown = -1
        self.closes = 0
        self.intervals: list[float] = []
        self.closed_at = 0.0
        self.begins = 0
        self.fence: int | None = None
        self.watch: int | None = None
        self.due: float | None = None

    @property
    def open_bytes(self) -> int:
        """Memory of the open windows."""
        return self._open.bytes

    @property
    def retained_bytes(self) -> int:
        """Memory of the closed windows that are kept for late data."""
        return self._retained.bytes

    def is_fenced(self, step: int) -> bool:
        """Whether `step` belongs to a later attempt."""
        return self.fence is not None and step >= self.fence

    def has_closed(self, step: int) -> bool:
        """Whether what comes for `step` is late."""
        return self.last_closed is not None and step <= self.last_closed and step not in self.open

    def insert(self, window: StepWindow) -> None:
        """Open a window."""
        place = bisect_right(self.order, window.step)
        # Whoever is past the next open step is past this one, of which nothing had been heard.
        if place < len(self.order) and self.open[self.order[place]].first_done is not None:
            window.note_done(window.opened)
        self._open.put(window)
        self.order.insert(place, window.step)
        self.note_step(window.step)
        self.watch = None

    def note_step(self, step: int) -> None:
        """Note that a step exists."""
        self.known.add(step)
        self.known.forget_lowest(MAX_KNOWN)

    def restore(self, fields: Mapping[str, object]) -> None:
        """Stand where it stood when its state was stored: attributes by name."""
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def oldest(self) -> StepWindow | None:
        """The only open window that may close next."""
        return self.open[self.order[0]] if self.order else None

    def remove(self, step: int) -> StepWindow:
        """Take an open window out, wherever it is."""
        self.order.remove(step)
        return self._open.take(step)

    def close_oldest(self, active: float) -> StepWindow:
        """Take the oldest open window out, and learn from how long it took."""
        self.ask_everybody()
        window = self._open.take(self.order.pop(0))
        # The first close has none before it that it could be measured from.
        if self.closes:
            self.intervals = [*self.intervals, active - self.closed_at][-INTERVALS:]
        self.closed_at = active
        self.closes += 1
        self._note_closed(window.step)
        return window

    def retain(self, window: StepWindow) -> None:
        """Keep a closed window in memory, which may never have been open: what comes for its step is late."""
        self._retained.put(window)
        self._note_closed(window.step)

    def let_go(self, step: int) -> StepWindow:
        """Take a closed window out."""
        return self._retained.take(step)

    def newest_first(self) -> Iterator[StepWindow]:
        """Yield the closed windows, the highest step first."""
        # They stand in the order in which they were put there, and one that came late, or back from the disk, is last.
        return map(self.retained.__getitem__, sorted(self.retained, reverse=True))

    def raise_horizon(self, step: int) -> None:
        """Note that the fold state of a closed step is in memory no more."""
        self.horizon = max(self.horizon, step)

    def begin(self, step: int, later: Iterable[Attempt]) -> None:
        """Note at which step the attempt begins; the first of the later ones ends it."""
        self.begins = step
        self.fence = min((attempt.begins for attempt in later), default=None)

    def end(self, step: int) -> list[StepWindow]:
        """Let a later attempt begin at `step`; return what was open here, and what had closed from there on.

        Earlier steps have closed by then. What arrives later of one of them is late data as any other.
        """
        self.fence = step
        # What comes of steps below the fence is late data, also of those of which nothing had come.
        self._note_closed(step - 1)
        # A copy, as `remove` takes each step out of `order`.
        return [self.remove(one) for one in list(self.order)]

    def let_go_from(self, step: int) -> list[StepWindow]:
        """Take out the closed windows from a step on."""
        return [self.let_go(one) for one in list(self.retained) if one >= step]

    def join(self, writer: int) -> None:
        """Make a writer a member; it may be the one that is waited for."""
        assert writer not in self.members, f"writer {writer} joins a lane twice"
        self.members.append(writer)
        self.watch = None

    def leave(self, writer: int) -> None:
        """Let a member go to another attempt."""
        self.members.remove(writer)
        self.watch = None

    def wait_for(self, writer: int | None, due: float | None) -> None:
        """Ask nobody else until `writer` is done with the oldest open window, or this moment comes."""
        self.watch, self.due = writer, due

    def ask_everybody(self) -> None:
        """Look at the oldest open window when it is looked at again, and not because of the time."""
        self.watch = self.due = None

    def _note_closed(self, step: int) -> None:
        self.last_closed = step if self.last_closed is None else max(self.last_closed, step)

    def pass_step(self, step: int, active: float) -> list[StepWindow]:
        """Note that a writer is past `step`; return the windows that have a first done writer since now."""
        noted = []
        for other in reversed(self.order):
            if other <= step:
                window = self.open[other]
                if not window.note_done(active):
                    break  # nor is there news of those below: each was passed with the ones above it
                noted.append(window)
                self.watch = None  # from now on others may be late
        return noted


class StepStream:
    """A role's axis, over all attempts.

    Attributes:
        attempts: ordinal of an attempt → its attempt.
        tally: counts of its points.
        reductions: how its metrics are reduced: those of its role.
        named: numbers of the shapes whose names were looked at; a cache.
        apart: metrics that are called as a value of another one is published; found again with the next such row.
    """

    __slots__ = (
        "_published",
        "_publisher",
        "_shares",
        "apart",
        "attempts",
        "axis",
        "named",
        "reductions",
        "role",
        "tally",
    )

    def __init__(self, role: str, axis: str, reductions: Reductions, publisher: dict[str, StepStream]) -> None:
        self.role = role
        self.axis = axis
        self.tally = Tally()
        self.attempts: dict[int, Attempt] = {}
        self.reductions = reductions
        self.named: set[int] = set()
        self.apart: set[str] = set()
        self._publisher = publisher
        self._published: set[str] = set()
        self._shares: set[StepStream] = set()

    def publish(self, names: KeysView[str]) -> Iterator[tuple[str, StepStream]]:
        """Note names of a row; yield a first one that another stream of the run has published, too, and that stream."""
        if names <= self._published:  # the usual case: as in the row before
            return
        for name in sorted(names - self._published):
            self._published.add(name)
            other = self._publisher.setdefault(name, self)
            if other is not self and other not in self._shares:
                self._shares.add(other)
                yield name, other

    def restore(self, tally: Tally) -> None:
        """Go on with the counts of an earlier service."""
        self.tally = tally

    @property
    def newest(self) -> Attempt:
        """The steps of the newest attempt."""
        return self.attempts[max(self.attempts)]


class StepStreams:
    """All streams of the run."""

    def __init__(self) -> None:
        self.streams: dict[tuple[str, str], StepStream] = {}
        self.all: dict[int, Attempt] = {}
        self.dirty: set[int] = set()
        self.reductions: dict[str, Reductions] = {}
        self._publisher: dict[str, StepStream] = {}

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self.all.values())

    def stream(self, role: str, axis: str) -> StepStream:
        """Return the stream, known or new."""
        found = self.streams.get((role, axis))
        if found is None:
            found = self.streams[role, axis] = StepStream(role, axis, self.of_role(role), self._publisher)
        return found

    def known(self, role: str, axis: str) -> StepStream:
        """Return the stream; where nothing was sent there, an empty one that is not among them."""
        # One that is says that the role has steps: what names none would wait for a row of it (`stepless.py`).
        return self.streams.get((role, axis)) or StepStream(role, axis, self.of_role(role), self._publisher)

    def of_role(self, role: str) -> Reductions:
        """Return how the metrics of a role are reduced, on all of its axes."""
        return self.reductions.setdefault(role, Reductions())

    def refold(self, role: str) -> None:
        """Forget what open steps of a role were folded to ahead of time: more is known by now."""
        for attempt in self.all.values():
            if attempt.stream.role == role:
                for window in attempt.open.values():
                    window.forget_folded()

    def attempt(self, stream: StepStream, ordinal: int) -> Attempt:
        """Return the stream's steps of the attempt `ordinal`, known or new."""
        found = stream.attempts.get(ordinal)
        if found is None:
            # Attempts are never removed: their count is the next number.
            found = Attempt(len(self.all), stream, ordinal)
            stream.attempts[ordinal] = self.all[found.number] = found
        return found
