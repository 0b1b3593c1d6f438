"""One process incarnation that writes: what of it has arrived, and where it stands on each axis."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml_service.aggregation.intervals import IntervalSet
from otel_ml_service.aggregation.ledger import Ledger
from otel_ml_service.aggregation.observation import SeriesKey, ShutdownMessage, Writer
from otel_ml_service.aggregation.piece import Source
from otel_ml_service.aggregation.writer_progress import Progress

__all__ = ["MAX_GAPS", "MAX_PARTS", "WriterState"]

MAX_GAPS = 16_384
"""Gaps in a writer's running numbers that are remembered; of more, the oldest count as filled."""

MAX_PARTS = 1_024
"""Running numbers of a writer that may be incomplete at a time; of more, the oldest counts as complete."""

_SET_BACK_NS = 60 * 10**9
"""Times that are so much older than others of a writer say that its clock was set back: nothing is reordered so far."""

_BEAT_S = 1.5
"""Seconds from its last sign of life up to which a record is another one: its clock may have been set ahead."""

_PHASE_S = 1.5
"""A heartbeat is taken once a second, and waits as long for the next request; some of a boot wait less than others."""


class WriterState:
    """One process incarnation.

    Attributes:
        number: its place among all writers of the run, by which the engine's state refers to it.
        writer: its resource, as it was said last.
        source: what of that the reduction needs.
        attempt: which its steps belong to; None before its first step.
        received: running numbers that arrived whole.
        parts: running number → series, of those a Collector has split and of which a piece is missing.
        floor: all running numbers up to here arrived, or are no longer waited for.
        forgiven: gaps up to here are no longer waited for.
        gap_since: active time since when something the writer sent is known to be missing.
        since, heard_at: first and last time it was heard, seconds since the epoch.
        replaced_at: active time at which a newer incarnation of its (role, rank) delivered its first step, unless
            this one was alive after that (`replaced_when`, seconds since the epoch): then both are live.
        born_at, alive_at: when it first and last recorded in a step or sent a heartbeat, by the service's clock: what
            it left in a spool is heard later than that. From `newest_ns`, the same by its own clock, and `lag`, the
            least seconds between a time of its own and its arrival; or, where it has heartbeats with the time of its
            boot, from `writer.born`, `boot_alive` and `boot_lag`, the same of a clock that is never wrong.
        boot_ns: when the machine was started by its own clock, as the heartbeat says that was heard last.
        contested: it started where its predecessor had closed, and that may still live (`restart_detection.py`).
        first_step_seq: the lowest running number that carried a step: where it started.
        native: it sends running numbers: it is one of ours.
        newest: it is the newest incarnation of its (role, rank) that delivered a step.
        before: the number of the incarnation before it.
        shutdown_message: its last record, once it was heard.
        died: its host says that its process is gone, and it sent no shutdown message. Not in the state that is kept.
        gone_at: when its host said first that its process is gone. Not in that state either.
        dismissed: who started it has said to end it by a kill: it owes no shutdown message.
        points: of another program, values that were done again or came too late; of one of ours it says nothing.
        ledger: what it says it sent, beside what arrived.
        attempts: axis → number of the attempt it writes to.
        progress: number of an attempt → where it stands there.
    """

    __slots__ = (
        "alive_at",
        "attempt",
        "attempts",
        "before",
        "boot_alive",
        "boot_lag",
        "boot_ns",
        "born_at",
        "contested",
        "died",
        "dismissed",
        "first_step_seq",
        "floor",
        "forgiven",
        "gap_since",
        "gone_at",
        "heard_at",
        "lag",
        "ledger",
        "native",
        "newest",
        "newest_ns",
        "number",
        "parts",
        "points",
        "progress",
        "received",
        "replaced_at",
        "replaced_when",
        "shutdown_message",
        "since",
        "source",
        "writer",
    )

    def __init__(self, number: int, writer: Writer, pool: str, *, begins_anew: bool = False) -> None:
        self.number = number
        self.writer = writer
        self.source = _source(number, writer, pool)
        self.attempt: int | None = None
        self.received = IntervalSet()
        self.parts: dict[int, set[SeriesKey]] = {}
        self.floor = 0
        self.forgiven = 0
        self.gap_since: float | None = None
        self.heard_at = 0.0
        self.since = 0.0
        self.replaced_at: float | None = None
        self.replaced_when = 0.0
        self.first_step_seq: int | None = None
        self.shutdown_message: ShutdownMessage | None = None
        self.died = False
        self.gone_at: float | None = None
        self.dismissed = False
        self.native = False
        self.newest = False
        self.newest_ns = 0
        self.lag: float | None = None
        self.boot_lag: float | None = None
        self.boot_ns = 0
        self.boot_alive = 0.0
        self.born_at = self.alive_at = 0.0
        self.contested = False
        self.before: int | None = None
        self.points = 0
        self.ledger = Ledger(begins_anew=begins_anew)
        self.attempts: dict[str, int] = {}
        self.progress: dict[int, Progress] = {}

    def describe(self, writer: Writer) -> None:
        """Take over what its resource says now: `init()` again may add a topology or a world size."""
        # Only where something is new: windows are folded together where their pieces have the very same source.
        if writer != self.writer:
            self.source = _source(self.number, writer, self.source.pool)
        self.writer = writer

    def hear(self, now: float) -> None:
        """Note a sign of life."""
        self.heard_at = now
        self.since = self.since or now

    def starts(self, seq: int) -> bool:
        """Note a running number that carries a step; whether it is the lowest so far: then it may be where it began."""
        if self.first_step_seq is not None and seq >= self.first_step_seq:
            return False
        self.first_step_seq = seq
        return True

    def enter(self, ordinal: int) -> None:
        """Belong to an attempt; it may turn out later that it is another one."""
        self.attempt = ordinal

    def write_to(self, axis: str, attempt: int) -> None:
        """Note to which attempt it writes on an axis, of the attempt that it belongs to."""
        assert self.attempt is not None, "a writer writes to a lane before it belongs to an attempt"
        self.attempts[axis] = attempt

    def begin(self, attempt: int) -> Progress:
        """Deliver to an attempt for the first time."""
        assert attempt not in self.progress, f"writer {self.number} begins twice on lane {attempt}"
        progress = self.progress[attempt] = Progress()
        return progress

    def go_on(self, axis: str, attempt: int, progress: Progress) -> None:
        """Deliver to an attempt of another attempt from where it stood in the one that it left."""
        assert attempt not in self.progress, f"writer {self.number} is on lane {attempt} already"
        self.write_to(axis, attempt)
        self.progress[attempt] = progress

    def leave(self, axis: str) -> Progress | None:
        """Leave the attempt of an axis, for one of another attempt; return where it stood there, if it delivered."""
        return self.progress.pop(self.attempts.pop(axis), None)

    def replace(self, active: float, now: float) -> None:
        """Note that a newer incarnation took its place."""
        self.replaced_at, self.replaced_when = active, now

    def live_on(self) -> None:
        """Note that it lives beside its successor after all."""
        assert self.replaced_at is not None, f"writer {self.number} lives on and was not replaced"
        self.replaced_at = None

    def question_restart(self) -> None:
        """Wait to see whether it is a restart."""
        self.contested = True

    def settle_restart(self) -> None:
        """Know whether it is one."""
        assert self.contested, f"nobody asked whether writer {self.number} is a restart"
        self.contested = False

    def crown(self) -> None:
        """Be the newest incarnation of its (role, rank) that delivered a step."""
        self.newest = True

    def step_down(self) -> None:
        """Be the newest no more."""
        self.newest = False

    def follow(self, before: int | None) -> None:
        """Note which incarnation of its (role, rank) came right before it."""
        self.before = before

    def know_as_ours(self) -> None:
        """Note that it sends running numbers."""
        self.native = True

    def go(self, now: float) -> None:
        """Note that its host says that its process is gone; what it left may still come, its shutdown message too."""
        self.gone_at = self.gone_at or now

    def die(self, now: float) -> None:
        """Note that it is gone, and that nothing more comes."""
        assert self.shutdown_message is None, f"writer {self.number} had shut down"
        self.go(now)
        self.died = True

    def retract_death(self) -> bool:
        """Note that its shutdown message came after all; whether its host had said that it died without one."""
        had_died, self.died = self.died, False
        return had_died

    def dismiss(self) -> None:
        """Expect no shutdown message of it: who started it ends it."""
        self.dismissed = True

    def restore(self, fields: Mapping[str, object]) -> None:
        """Stand where it stood when its state was stored: attributes by name."""
        for name, value in fields.items():
            setattr(self, name, value)

    def shut_down(self, shutdown_message: ShutdownMessage) -> None:
        """Note its last record; of several the one that it sent last counts, in whatever order they arrive."""
        # A second one has what was refused or held up meanwhile (docs/protocol.md §4.10), and a Collector may let it
        # overtake the first, which knows of none of that.
        if self.shutdown_message is None or self.shutdown_message.seq < shutdown_message.seq:
            self.shutdown_message = shutdown_message

    @property
    def child(self) -> bool:
        """Whether it was forked or spawned from another writer: never a member."""
        return self.writer.parent is not None

    @property
    def has_left(self) -> bool:
        """Whether it says nothing more: it sent its shutdown message, or died without one."""
        return self.died or self.shutdown_message is not None

    @property
    def ended(self) -> bool:
        """It sent its shutdown message, or owed none, and everything it sent before has arrived."""
        if self.shutdown_message is None:
            return self.dismissed and self.died
        return self.shutdown_message.seq <= self.floor

    @property
    def alive_ns(self) -> int:
        """When it last recorded in a step or sent a heartbeat, by its own clock."""
        # The heartbeat has both clocks, so the boot's, which nobody sets, can be told as time of day.
        return self.newest_ns if self.boot_lag is None else self.boot_ns + round(self.boot_alive * 1e9)

    def lived(self, time_ns: int, now: float) -> None:
        """Note that something arrived that it recorded at `time_ns`."""
        if self.boot_lag is not None:
            self._lived_since_heartbeat((time_ns - self.boot_ns) / 1e9)
            return
        lag = now - time_ns / 1e9
        # A clock that was set has another difference to ours: it is measured anew, and says nothing of before.
        was_set_back = time_ns < self.newest_ns - _SET_BACK_NS
        if self.lag is None or was_set_back:
            self.lag, self.born_at = lag, self.born_at or now
        elif lag < self.lag:  # it traveled faster than anything before: that had been recorded earlier than thought
            self.born_at -= self.lag - lag
            self.lag = lag
        self.newest_ns = time_ns if was_set_back else max(self.newest_ns, time_ns)
        self.born_at = min(self.born_at, time_ns / 1e9 + self.lag)
        self.alive_at = self.newest_ns / 1e9 + self.lag

    def beat(self, boot_s: float, time_ns: int, lag: float) -> None:
        """Note a heartbeat that was taken at `boot_s` of the clock of its boot, and arrived `lag` later."""
        self.boot_lag = lag if self.boot_lag is None else min(lag, self.boot_lag)
        self.boot_alive = max(self.boot_alive, boot_s)
        self.boot_ns = time_ns - round(boot_s * 1e9)

    def _lived_since_heartbeat(self, boot_s: float) -> None:
        """Note that it recorded something at `boot_s`: a heartbeat is taken once a second only."""
        longer = boot_s - self.boot_alive
        if 0 < longer <= _BEAT_S:
            self.boot_alive = boot_s
            self.alive_at += longer

    def date(self, least_lag: float) -> None:
        """Say when it lived, by the service's clock.

        Args:
            least_lag: of all writers of its boot.
        """
        assert self.boot_lag is not None
        lag = min(self.boot_lag, least_lag + _PHASE_S)
        self.born_at = self.writer.born + lag
        self.alive_at = self.boot_alive + lag

    def receive(self, seq: int) -> bool:
        """Note that a running number arrived whole; False where it was known."""
        if not self.received.add(seq):
            return False
        self.received.fill_lowest(MAX_GAPS)
        if seq == self.floor + 1:
            self.floor = self.received.prefix_end(seq)
            # `floor` moved, so the gap that was waited for is filled. If another one is left, it has its own time.
            self.gap_since = None  # what is missing now has not been missing for long
        return True

    def take(self, seq: int, total: int, series: tuple[SeriesKey, ...]) -> list[int] | None:
        """Note that points of running number `seq` arrived; return the rows that are new, None for all.

        Only whole running numbers enter the intervals; a split one is tracked point by point until complete.
        """
        # A Collector may split one message into several, and may send one of the pieces twice. The message has one
        # running number for all, so pieces are told apart by the series that they hold.
        have = self.parts.get(seq)
        if have is None and len(series) >= total:
            return None if self.receive(seq) else []
        if have is None and seq in self.received:
            return []
        have = self.parts.setdefault(seq, set())
        if len(self.parts) > MAX_PARTS:
            oldest = min(self.parts)
            self.receive(oldest)
            del self.parts[oldest]
        fresh = [row for row, key in enumerate(series) if key not in have]
        have.update(series)
        if len(have) >= total:
            self.receive(seq)
            del self.parts[seq]
        return None if len(fresh) == len(series) else fresh

    def settle_gaps(self, active: float, timeout: float) -> None:
        """Start, stop or end waiting for what is missing."""
        highest = self._highest_sent()
        if self.floor >= highest:
            self.gap_since = None
        elif self.gap_since is None:
            self.gap_since = active
        # Given up: everything up to the highest number counts as arrived, so steps close. What comes later from the gap
        # is late data, and the ledger says how much of it never came.
        elif active - self.gap_since >= timeout:
            self.floor = self.forgiven = highest
            self.gap_since = None

    def _highest_sent(self) -> int:
        """Return the highest number up to which what is missing counts as under way, or as lost.

        A shutdown message may overtake a whole queue: logs have one of their own in the Collector. What lies before it
        is missing only after nothing else is.
        """
        highest = self.received.highest or 0
        if self.parts:
            highest = max(highest, *self.parts)
        if self.shutdown_message is not None and self.shutdown_message.seq == highest:
            before = max(self.received.highest_below(highest), max(self.parts, default=0))
            return before if before > self.floor else highest
        return highest

    def raise_done(self) -> None:
        """Move every attempt's `done_through` up to the watermarks before which nothing is missing anymore."""
        for progress in self.progress.values():
            if progress.watermarks:
                progress.raise_to(self.floor)

    def count(self, values: int) -> None:
        """Count values of another program as recorded: it does not say so itself."""
        self.points += values


def _source(number: int, writer: Writer, pool: str) -> Source:
    topology = {dimension: coordinate for dimension, coordinate, _ in writer.topology}
    return Source(number, writer.rank, writer.instance, pool, topology, writer.with_role, writer.host)
