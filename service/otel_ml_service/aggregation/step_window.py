"""What was recorded at one step, and where it stands: among an attempt's open steps, or among its closed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from otel_ml_service.aggregation.exported_series import Series
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.reduced_windows import Folded

__all__ = ["StepWindow", "StepWindows"]

_EXPORTED_BYTES = 200
"""What an exported value costs besides its fold state: its published name, a double, a place in a dictionary."""


class StepWindow:
    """What was recorded at one step of an attempt.

    Attributes:
        number: the engine's own number, which its state entries are called after.
        points: writer → points of it that arrived for this step.
        watermarks: writer → (points it says it sent, running number of the watermark).
        opened: active time of the first arrival.
        first_done: active time at which the first writer was past this step, or None.
        due: active time at which a window of the axis `time` closes; None for steps.
        excused: writers that are no longer waited for at this step.
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
        shelf: where it stands, which is told what it weighs; None where it is in no attempt.
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
        "missing",
        "named",
        "newest_ns",
        "number",
        "opened",
        "pieces",
        "points",
        "rewritten",
        "shelf",
        "size",
        "step",
        "stored",
        "stored_bytes",
        "waiting",
        "watermarks",
    )

    def __init__(self, number: int, step: int, opened: float) -> None:
        self.number = number
        self.step = step
        self.opened = opened
        self.pieces: list[Piece] = []
        self.folded: Folded | None = None
        self.newest_ns = 0
        self.points: dict[int, int] = {}
        self.watermarks: dict[int, tuple[int, int]] = {}
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
        self.shelf: StepWindows | None = None

    def add(self, piece: Piece) -> None:
        """Keep a piece."""
        self.pieces.append(piece)
        self.folded = None
        self._grow(piece.size)
        self.newest_ns = max(self.newest_ns, piece.newest_ns)
        piece.shape.acquire()

    def remove(self, pieces: list[Piece]) -> None:
        """Give up some pieces; the committed ones are written anew."""
        # By identity: pieces hold arrays, which have no one answer to whether they are equal.
        gone = {id(piece) for piece in pieces}
        self.pieces = [piece for piece in self.pieces if id(piece) not in gone]
        for piece in pieces:
            self._grow(-piece.size)
            piece.shape.release()
        self.folded = None
        self.rewritten = True
        self.stored = 0

    def remove_of(self, writer: int) -> list[Piece]:
        """Give up what a writer delivered, and return it."""
        mine = self.of(writer)
        self.remove(mine)
        self.points.pop(writer, None)
        return mine

    def release(self) -> None:
        """Let go of the shapes, when the window is no more in memory."""
        for piece in self.pieces:
            piece.shape.release()

    def keep_folded(self, folded: Folded) -> None:
        """Keep what its pieces were folded to ahead of its close."""
        self.folded = folded

    def take_folded(self) -> Folded | None:
        """Hand out what its pieces were folded to ahead of its close, if that is known."""
        folded, self.folded = self.folded, None
        return folded

    def forget_folded(self) -> None:
        """Forget what its pieces were folded to: more is known by now of how they are reduced."""
        self.folded = None

    def close_at(self, active: float) -> None:
        """Close at this moment, whoever is heard or not; the first answer holds."""
        if self.due is None:
            self.due = active

    def forget(self, exported: frozenset[Series] | None) -> None:
        """Note that of what was exported here the fold state is gone: which series, or None where nobody knows."""
        self.forgotten = exported

    def count_points(self, writer: int, points: int) -> None:
        """Note that points arrived of those that the writer's watermark will count."""
        self.points[writer] = self.points.get(writer, 0) + points

    def hear_watermark(self, writer: int, points: int, seq: int) -> None:
        """Note how many points a writer says it sent; it may say so again, with more."""
        # The largest one counts (docs/protocol.md §4.6): they may arrive in another order than they were sent.
        former_points, former_seq = self.watermarks.get(writer, (0, 0))
        self.watermarks[writer] = (max(former_points, points), max(former_seq, seq))

    def pass_on(self, writer: int, other: StepWindow) -> None:
        """Carry over to another window what is known of the writer's points."""
        if writer in self.points:
            other.points[writer] = self.points.pop(writer)
        if writer in self.watermarks:
            other.watermarks[writer] = self.watermarks.pop(writer)

    def note_done(self, active: float) -> bool:
        """Note that a writer is past this step; False where another one was before."""
        if self.first_done is not None:
            return False
        self.first_done = active
        return True

    def name(self) -> None:
        """Note that a person was told whom it waits for."""
        self.named = True

    def excuse(self, writer: int) -> None:
        """Wait no more for a writer."""
        self.excused.add(writer)

    def miss(self, holders: list[int]) -> None:
        """Note at its close for whom it waited, or no longer did: of them, points are still expected."""
        self.missing = self.excused.union(holders)

    def publish(self, values: dict[str, float]) -> None:
        """Note what exporters get of it now: nothing waits anymore."""
        self._grow_exported(values)
        self.waiting, self.late_since = 0, None

    def note_histogram(self, name: str, records: float) -> bool:
        """Note how many records are in a histogram that exporters get; whether they had another one, or none."""
        if self.histograms.get(name) == records:
            return False
        self.histograms[name] = records
        return True

    def publish_nothing(self) -> None:
        """Note that it closes, or closed, with no row."""
        if self.exported is None:
            self.exported = {}

    def join_late(self, piece: Piece, active: float) -> None:
        """Keep a piece that came after it closed, until it is exported."""
        self.add(piece)
        self.waiting += len(piece.partials.series)
        if self.late_since is None:
            self.late_since = active

    def withdraw(self, pieces: list[Piece]) -> None:
        """Give up late pieces of one writer that were not exported."""
        self.remove(pieces)
        self.waiting -= sum(len(piece.partials.series) for piece in pieces)
        # There is one: only what a writer has in the window is withdrawn.
        self.missing.discard(pieces[0].source.number)
        if self.waiting <= 0:
            self.waiting, self.late_since = 0, None

    def unwrite(self) -> int:
        """Return how many entries hold pieces that are to be written anew, and forget them."""
        chunks, self.rewritten, self.chunks, self.stored_bytes = self.chunks, False, 0, 0
        return chunks

    def restore(self, fields: Mapping[str, object]) -> None:
        """Be what it was when its state was stored, but for its points: attributes by name."""
        assert self.shelf is None, f"step {self.step} is restored after it was put among others: its weight is counted"
        for name, value in fields.items():
            setattr(self, name, value)

    def read_back(self, chunks: int, missing: Iterable[int], forgotten: frozenset[Series] | None) -> None:
        """Be a closed step of the disk again, in the shapes of memory: its entries are stale, and written anew."""
        self.chunks, self.rewritten = chunks, True
        self.missing = set(missing)
        self.forget(forgotten)

    def note_all_stored(self, size: int) -> None:
        """Note that its pieces were read from the committed state, where they have so many bytes."""
        self.stored, self.stored_bytes = len(self.pieces), size

    def note_stored(self, size: int) -> None:
        """Note that all of its pieces are in the committed state, the newest ones in an entry of so many bytes."""
        self.stored, self.chunks = len(self.pieces), self.chunks + 1
        self.stored_bytes += size

    @property
    def weight(self) -> int:
        """Bytes in memory, about, with what was exported."""
        return self.size + _EXPORTED_BYTES * len(self.exported or ())

    @property
    def count(self) -> int:
        """Points kept."""
        return sum(len(piece.partials.series) for piece in self.pieces)

    @property
    def writers(self) -> set[int]:
        """Writers that sent points of this step."""
        return {piece.source.number for piece in self.pieces}

    def of(self, writer: int) -> list[Piece]:
        """Return the pieces of a writer."""
        return [piece for piece in self.pieces if piece.source.number == writer]

    def _grow(self, size: int) -> None:
        self.size += size
        if self.shelf is not None:
            self.shelf.weigh(size)

    def _grow_exported(self, values: dict[str, float]) -> None:
        # A correction publishes again: only the difference is told to the shelf.
        before = self.weight
        self.exported = values
        if self.shelf is not None:
            self.shelf.weigh(self.weight - before)

    def stand_on(self, shelf: StepWindows) -> None:
        """Tell this place from here on what it weighs."""
        assert self.shelf is None, f"step {self.step} stands on two shelves"
        self.shelf = shelf

    def leave_shelf(self) -> None:
        """Stand nowhere."""
        self.shelf = None


class StepWindows:
    """Windows of an attempt by step: the open ones, or those that closed.

    Attributes:
        windows: step → window; only `put` and `take` change which.
        bytes: what they weigh; a window that changes changes it, wherever it does.
    """

    __slots__ = ("bytes", "windows")

    def __init__(self) -> None:
        self.windows: dict[int, StepWindow] = {}
        self.bytes = 0

    def put(self, window: StepWindow) -> None:
        """Add a window that stands nowhere else."""
        assert window.step not in self.windows, f"step {window.step} stands here twice"
        window.stand_on(self)
        self.windows[window.step] = window
        self.bytes += window.weight

    def take(self, step: int) -> StepWindow:
        """Take a window out."""
        window = self.windows.pop(step)
        window.leave_shelf()
        self.bytes -= window.weight
        return window

    def weigh(self, more: int) -> None:
        """Note that a window weighs more, or less."""
        self.bytes += more
