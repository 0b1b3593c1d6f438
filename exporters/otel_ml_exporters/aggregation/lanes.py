"""The steps of one role on one axis: open ones, closed ones that are kept for late data, and what was learned.

::

    Track (role, axis) ── Lane (attempt 0) ── Unit step 0, 1, 2, …
                      └── Lane (attempt 1) ── Unit step 1, 2, …
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from otel_ml_exporters.aggregation.exported_series import Series
from otel_ml_exporters.aggregation.folded import Folded
from otel_ml_exporters.aggregation.intervals import IntervalSet
from otel_ml_exporters.aggregation.piece import Piece
from otel_ml_exporters.aggregation.reductions import Reductions

__all__ = ["PUBLISHED", "Lane", "Lanes", "Tally", "Track", "Unit"]

PUBLISHED = ("amended", "duplicate", "overflow", "quantile_coarse", "steps_redone", "superseded", "too_late")
"""Counts that are published in the run, as `otel_ml/<name>`, in the next row after they changed."""

MAX_KNOWN = 1_024
"""Intervals of steps that are known to exist; who was last heard below them has passed over none."""

_EXPORTED_BYTES = 200
"""What an exported value costs besides its fold state: its published name, a double, a place in a dictionary."""


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

    def counts(self) -> dict[str, int]:
        """Return every count by name."""
        return {name: getattr(self, name) for name in (*PUBLISHED, "received", "closed", "ignored")}

    def news(self) -> dict[str, int]:
        """Return the counts that are to be published and changed since this was asked last."""
        fresh = {name: getattr(self, name) for name in PUBLISHED}
        fresh = {name: count for name, count in fresh.items() if count != self.published.get(name, 0)}
        self.published.update(fresh)
        return fresh


class Unit:
    """What was recorded at one step of a lane.

    Attributes:
        number: the engine's own number, which its state entries are called after.
        points: writer → points of it that arrived for this step.
        manifests: writer → (points it says it sent, running number of the manifest).
        opened: active time of the first arrival.
        first_done: active time at which the first writer was past this step, or None.
        due: active time at which a window of the axis `time` closes; None for steps.
        excused: writers that are not waited for any more at this step.
        missing: after closing: members of which points are still expected.
        newest_ns: time of its newest record.
        exported: after closing: published name → value, as exporters got it.
        histograms: after closing: published name → records in it.
        forgotten: series that were exported here, and of which the fold state is gone: what comes for them is too late.
            None where it is not known which those are: then it is all.
        late_since: active time since when a late change waits to be exported.
        waiting: late points not exported yet.
        named: a person was told whom it waits for.
        rewritten: pieces were taken out, the entries are stale.
        folded: what its pieces are reduced to, where that is known already.
        size: bytes in memory of its pieces, about.
        stored, chunks, stored_bytes: pieces already in the committed state, in how many entries, and their bytes.
    """

    __slots__ = (
        "chunks",
        "due",
        "excused",
        "exported",
        "first_done",
        "folded",
        "forgotten",
        "histograms",
        "late_since",
        "manifests",
        "missing",
        "named",
        "newest_ns",
        "number",
        "opened",
        "pieces",
        "points",
        "rewritten",
        "size",
        "step",
        "stored",
        "stored_bytes",
        "waiting",
    )

    def __init__(self, number: int, step: int, opened: float) -> None:
        self.number = number
        self.step = step
        self.opened = opened
        self.pieces: list[Piece] = []
        self.folded: Folded | None = None
        self.newest_ns = 0
        self.points: dict[int, int] = {}
        self.manifests: dict[int, tuple[int, int]] = {}
        self.first_done: float | None = None
        self.due: float | None = None
        self.excused: set[int] = set()
        self.missing: set[int] = set()
        self.exported: dict[str, float] | None = None
        self.histograms: dict[str, float] = {}
        self.forgotten: frozenset[Series] | None = frozenset()
        self.late_since: float | None = None
        self.waiting = 0
        self.size = 0
        self.stored = 0
        self.stored_bytes = 0
        self.chunks = 0
        self.named = False
        self.rewritten = False

    def add(self, piece: Piece) -> None:
        """Keep a piece."""
        self.pieces.append(piece)
        self.folded = None
        self.size += piece.size
        self.newest_ns = max(self.newest_ns, piece.newest_ns)
        piece.shape.users += 1

    @property
    def weight(self) -> int:
        """Bytes in memory, about, with what was exported."""
        return self.size + _EXPORTED_BYTES * len(self.exported or ())

    def remove(self, pieces: list[Piece]) -> None:
        """Give up some pieces; the committed ones are written anew."""
        gone = {id(piece) for piece in pieces}
        self.pieces = [piece for piece in self.pieces if id(piece) not in gone]
        for piece in pieces:
            self.size -= piece.size
            piece.shape.users -= 1
        self.folded = None
        self.rewritten = True
        self.stored = 0

    def release(self) -> None:
        """Let go of the shapes, when the unit is no more in memory."""
        for piece in self.pieces:
            piece.shape.users -= 1

    @property
    def count(self) -> int:
        """Points kept."""
        return sum(len(piece.partials.series) for piece in self.pieces)

    @property
    def writers(self) -> set[int]:
        """Writers that sent points of this step."""
        return {piece.source.number for piece in self.pieces}


class Lane:
    """One attempt's steps of a track.

    Attributes:
        open: step → its unit, while it is not closed.
        order: the open steps, ascending.
        retained: step → its unit, after it closed and while its fold state is in memory.
        retained_bytes: what those weigh.
        members: writers that ever delivered here.
        known: steps that ever held anything.
        last_closed: the highest closed step.
        horizon: of closed steps up to here the fold state may be on the disk only, or gone.
        unknown: of closed steps up to here that are not on the disk, it is not known what was exported.
        closes: how many units closed.
        closed_at: active time at which the last one did.
        intervals: active seconds between the last eight closes.
        begins: the step at which it opened.
        fence: the step at which a later attempt began: from there on nothing is taken here any more.
        watch: a writer known to hold the oldest open unit; while it does, nobody else need be asked.
        due: active time at which the oldest open unit has to be looked at again.
    """

    __slots__ = (
        "attempt",
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
        "retained",
        "retained_bytes",
        "track",
        "unknown",
        "watch",
    )

    def __init__(self, number: int, track: Track, attempt: int) -> None:
        self.number = number
        self.track = track
        self.attempt = attempt
        self.open: dict[int, Unit] = {}
        self.order: list[int] = []
        self.retained: dict[int, Unit] = {}
        self.retained_bytes = 0
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

    def is_fenced(self, step: int) -> bool:
        """Whether `step` belongs to a later attempt."""
        return self.fence is not None and step >= self.fence

    def has_closed(self, step: int) -> bool:
        """Whether what comes for `step` is late."""
        return self.last_closed is not None and step <= self.last_closed and step not in self.open

    def insert(self, unit: Unit) -> None:
        """Open a unit."""
        place = bisect_right(self.order, unit.step)
        if place < len(self.order) and self.open[self.order[place]].first_done is not None:
            unit.first_done = unit.opened
        self.open[unit.step] = unit
        self.order.insert(place, unit.step)
        self.note_step(unit.step)
        self.watch = None

    def note_step(self, step: int) -> None:
        """Note that a step exists."""
        self.known.add(step)
        self.known.forget_lowest(MAX_KNOWN)

    @property
    def oldest(self) -> Unit | None:
        """The only open unit that may close next."""
        return self.open[self.order[0]] if self.order else None

    def remove_oldest(self) -> Unit:
        """Take the oldest open unit out."""
        self.watch = self.due = None
        return self.open.pop(self.order.pop(0))

    def remove(self, step: int) -> Unit:
        """Take an open unit out, wherever it is."""
        self.order.remove(step)
        return self.open.pop(step)

    def pass_step(self, step: int, active: float) -> None:
        """Note that a writer is past `step`: units up to it have a first done writer now."""
        for other in reversed(self.order):
            if other <= step:
                unit = self.open[other]
                if unit.first_done is not None:
                    break
                unit.first_done = active
                self.watch = None  # from now on others may be late


class Track:
    """A role's axis, over all attempts.

    Attributes:
        lanes: attempt → its lane.
        tally: counts of its points.
        reductions: how its metrics are reduced: those of its role.
        named: numbers of the shapes whose names were looked at; a cache.
    """

    __slots__ = ("axis", "lanes", "named", "reductions", "role", "tally")

    def __init__(self, role: str, axis: str, reductions: Reductions) -> None:
        self.role = role
        self.axis = axis
        self.tally = Tally()
        self.lanes: dict[int, Lane] = {}
        self.reductions = reductions
        self.named: set[int] = set()

    @property
    def newest(self) -> Lane:
        """The lane of the newest attempt."""
        return self.lanes[max(self.lanes)]


class Lanes:
    """All tracks of the run."""

    def __init__(self) -> None:
        self.tracks: dict[tuple[str, str], Track] = {}
        self.all: dict[int, Lane] = {}
        self.dirty: set[int] = set()
        self.reductions: dict[str, Reductions] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self.all.values())

    def track(self, role: str, axis: str) -> Track:
        """Return the track, known or new."""
        found = self.tracks.get((role, axis))
        if found is None:
            found = self.tracks[role, axis] = Track(role, axis, self.of_role(role))
        return found

    def of_role(self, role: str) -> Reductions:
        """Return how the metrics of a role are reduced, on all of its axes."""
        return self.reductions.setdefault(role, Reductions())

    def refold(self, role: str) -> None:
        """Forget what open steps of a role were folded to ahead of time: more is known by now."""
        for lane in self.all.values():
            if lane.track.role == role:
                for unit in lane.open.values():
                    unit.folded = None

    def lane(self, track: Track, attempt: int) -> Lane:
        """Return the track's lane of `attempt`, known or new."""
        found = track.lanes.get(attempt)
        if found is None:
            found = Lane(len(self.all), track, attempt)
            track.lanes[attempt] = self.all[found.number] = found
        return found
