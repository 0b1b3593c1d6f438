"""Who writes: one state per process incarnation, what of it has arrived, and where it stands on each axis."""

from __future__ import annotations

import math
from collections.abc import Iterator

from otel_ml_exporters.aggregation.intervals import IntervalSet
from otel_ml_exporters.aggregation.observation import Goodbye, SeriesKey, Writer
from otel_ml_exporters.aggregation.piece import Source
from otel_ml_exporters.aggregation.progress import Progress

__all__ = ["WriterState", "Writers"]

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
        floor: all running numbers up to here arrived, or are not waited for any more.
        forgiven: gaps up to here are not waited for any more.
        gap_since: active time since when something the writer sent is known to be missing.
        since, heard_at: first and last time it was heard, seconds since the epoch.
        replaced_at: active time at which a newer incarnation of its (role, rank) delivered its first step, unless
            this one was alive after that (`replaced_when`, seconds since the epoch): then both are live.
        born_at, alive_at: when it first and last recorded in a step or sent a heartbeat, by the service's clock: what
            it left in a spool is heard later than that. From `newest_ns`, the same by its own clock, and `lag`, the
            least seconds between a time of its own and its arrival; or, where it has heartbeats with the time of its
            boot, from `writer.born`, `boot_alive` and `boot_lag`, the same of a clock that is never wrong.
        boot_ns: when the machine was started by its own clock, as the heartbeat says that was heard last.
        contested: it started where its predecessor had closed, and that may still live (`contest.py`).
        first_step_seq: the lowest running number that carried a step: where it started.
        native: it sends running numbers: it is one of ours.
        newest: it is the newest incarnation of its (role, rank) that delivered a step.
        before: the number of the incarnation before it.
        goodbye: its last record, once it was heard.
        points: of it that were taken, without duplicates.
        lanes: axis → number of the lane it writes to.
        progress: number of a lane → where it stands there.
    """

    __slots__ = (
        "alive_at",
        "attempt",
        "before",
        "boot_alive",
        "boot_lag",
        "boot_ns",
        "born_at",
        "contested",
        "first_step_seq",
        "floor",
        "forgiven",
        "gap_since",
        "goodbye",
        "heard_at",
        "lag",
        "lanes",
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
        "since",
        "source",
        "writer",
    )

    def __init__(self, number: int, writer: Writer, pool: str) -> None:
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
        self.goodbye: Goodbye | None = None
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
        self.lanes: dict[str, int] = {}
        self.progress: dict[int, Progress] = {}

    def describe(self, writer: Writer) -> None:
        """Take over what its resource says now: `init()` again may add a topology or a world size."""
        if writer != self.writer:
            self.source = _source(self.number, writer, self.source.pool)
        self.writer = writer

    @property
    def child(self) -> bool:
        """Whether it was forked or spawned from another writer: never a member."""
        return self.writer.parent is not None

    @property
    def ended(self) -> bool:
        """It said goodbye, and everything it sent before has arrived."""
        return self.goodbye is not None and self.goodbye.seq <= self.floor

    def lived(self, time_ns: int, now: float) -> None:
        """Note that something arrived that it recorded at `time_ns`."""
        if self.boot_lag is not None:
            self._lived_since_heartbeat((time_ns - self.boot_ns) / 1e9)
            return
        lag = now - time_ns / 1e9
        was_set_back = time_ns < self.newest_ns - _SET_BACK_NS
        if self.lag is None or was_set_back:
            self.lag, self.born_at = lag, self.born_at or now
        elif lag < self.lag:  # it travelled faster than anything before: that had been recorded earlier than thought
            self.born_at -= self.lag - lag
            self.lag = lag
        self.newest_ns = time_ns if was_set_back else max(self.newest_ns, time_ns)
        self.born_at = min(self.born_at, time_ns / 1e9 + self.lag)
        self.alive_at = self.newest_ns / 1e9 + self.lag

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
            self.gap_since = None  # what is missing now has not been missing for long
        return True

    def take(self, seq: int, total: int, series: tuple[SeriesKey, ...]) -> list[int] | None:
        """Note that points of running number `seq` arrived; return the rows that are new, None for all.

        Only whole running numbers enter the intervals; a split one is tracked point by point until complete.
        """
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

    def settle_gaps(self, active: float, patience: float) -> None:
        """Start, stop or end waiting for what is missing."""
        highest = self._highest_sent()
        if self.floor >= highest:
            self.gap_since = None
        elif self.gap_since is None:
            self.gap_since = active
        elif active - self.gap_since >= patience:
            self.floor = self.forgiven = highest
            self.gap_since = None

    def _highest_sent(self) -> int:
        """Return the highest number up to which what is missing counts as under way, or as lost.

        A goodbye may overtake a whole queue: logs have one of their own in the Collector. What lies before it is
        missing only after nothing else is.
        """
        highest = self.received.highest or 0
        if self.parts:
            highest = max(highest, *self.parts)
        if self.goodbye is not None and self.goodbye.seq == highest:
            before = max(self.received.highest_below(highest), max(self.parts, default=0))
            return before if before > self.floor else highest
        return highest

    def raise_done(self) -> None:
        """Move every lane's `done_through` up to the manifests before which nothing is missing any more."""
        for progress in self.progress.values():
            if progress.manifests:
                progress.raise_to(self.floor)


def _source(number: int, writer: Writer, pool: str) -> Source:
    topology = {dimension: coordinate for dimension, coordinate, _ in writer.topology}
    return Source(number, writer.rank, writer.instance, pool, topology, writer.with_role)


class Writers:
    """All writers of the run, found by their resource.

    Attributes:
        all: by number.
        dirty: numbers of those whose state is to be committed.
        described: numbers of those whose resource is to be committed.
    """

    def __init__(self) -> None:
        self.all: list[WriterState] = []
        self._by_instance: dict[tuple[str, str], WriterState] = {}
        self._newest: dict[tuple[str, int], WriterState] = {}
        self._least_lag: dict[str, float] = {}
        self._newest_beat: dict[str, float] = {}
        self.dirty: set[int] = set()
        self.described: set[int] = set()

    def __iter__(self) -> Iterator[WriterState]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, number: int) -> WriterState:
        return self.all[number]

    def knows(self, writer: Writer) -> bool:
        """Whether `writer` has a state."""
        return (writer.role, writer.instance) in self._by_instance

    def of(self, writer: Writer) -> WriterState:
        """Return the state of `writer`, known or new."""
        state = self._by_instance.get((writer.role, writer.instance))
        if state is None:
            return self.add(writer)
        if state.writer is not writer:
            state.describe(writer)
            self.described.add(state.number)
        return state

    def add(self, writer: Writer, pool: str | None = None) -> WriterState:
        """Number a new writer; it pools with its parent, as far as that is known."""
        parent = self._by_instance.get((writer.role, writer.parent)) if writer.parent is not None else None
        pool = pool or (parent.source.pool if parent is not None else writer.parent or writer.instance)
        state = WriterState(len(self.all), writer, pool)
        self.all.append(state)
        self.described.add(state.number)
        self._by_instance[writer.role, writer.instance] = state
        return state

    def parent_of(self, state: WriterState) -> WriterState | None:
        """Return the parent's state, where it was heard."""
        parent = state.writer.parent
        return None if parent is None else self._by_instance.get((state.writer.role, parent))

    def predecessor(self, state: WriterState) -> WriterState | None:
        """Return the incarnation of its (role, rank) before it, if that has delivered a step."""
        if state.before is not None:
            return self.all[state.before]
        newest = self._newest.get((state.writer.role, state.writer.rank))
        return newest if newest is not state else None

    def lived(self, state: WriterState, boot_s: float, time_ns: int, now: float) -> None:
        """Note that a heartbeat arrived that was taken at `boot_s` of the clock of the writer's boot.

        What arrives late, from the spool of a dead one above all, is dated by what of the same boot arrived soonest.
        """
        boot, lag = state.writer.boot, now - boot_s
        state.boot_lag = lag if state.boot_lag is None else min(lag, state.boot_lag)
        state.boot_alive = max(state.boot_alive, boot_s)
        state.boot_ns = time_ns - round(boot_s * 1e9)
        self._newest_beat[boot] = max(boot_s, self._newest_beat.get(boot, 0.0))
        dated = [state]
        if lag < self._least_lag.get(boot, math.inf):
            self._least_lag[boot] = lag
            dated = [one for one in self.all if one.writer.boot == boot and one.boot_lag is not None]
        for one in dated:
            one.date(self._least_lag[boot])
            self.dirty.add(one.number)

    def recall(self, state: WriterState) -> None:
        """Take up what was learned from a writer before a restart of the service."""
        if state.boot_lag is not None:
            boot = state.writer.boot
            self._least_lag[boot] = min(state.boot_lag, self._least_lag.get(boot, math.inf))
            self._newest_beat[boot] = max(state.boot_alive, self._newest_beat.get(boot, 0.0))

    def silent_s(self, state: WriterState, now: float) -> float:
        """Return for how long nothing is known of a writer's life, while others lived.

        What is late, is late for all processes of a machine: a queue on the way makes none of them dead.
        """
        if not state.boot_alive:
            return now - state.alive_at
        return self._newest_beat[state.writer.boot] - state.boot_alive

    def born(self, state: WriterState) -> float | None:
        """Return when a writer began, by the service's clock; None where its boot has sent no heartbeat.

        That is right to the least time that anything took on its way from there.
        """
        lag = self._least_lag.get(state.writer.boot)
        return None if lag is None else state.writer.born + lag

    def can_compare(self, state: WriterState, other: WriterState) -> bool:
        """Whether it is known which of the two began first."""
        if state.writer.boot == other.writer.boot:
            return bool(state.writer.boot)
        return state.writer.boot in self._least_lag and other.writer.boot in self._least_lag

    def began_before(self, state: WriterState, other: WriterState, *, by_s: float = 0.0) -> bool:
        """Whether `state` is known to have begun before `other`, by more than `by_s`, whoever was heard first."""
        if state.writer.boot == other.writer.boot:
            return bool(state.writer.boot) and state.writer.born + by_s < other.writer.born
        one, two = self.born(state), self.born(other)
        return one is not None and two is not None and one + by_s < two

    def began_after(self, state: WriterState, other: WriterState) -> bool:
        """Whether `state` began after the last sign of life of `other`."""
        alive = max(other.boot_alive, other.writer.born)
        if state.writer.boot and state.writer.boot == other.writer.boot:
            if other.boot_alive or state.writer.born <= alive:
                return state.writer.born > alive
        elif other.boot_alive and (born := self.born(state)) is not None:
            return born > alive + self._least_lag[other.writer.boot]
        return state.born_at > other.alive_at

    def successor(self, state: WriterState) -> WriterState | None:
        """Return the first incarnation of its (role, rank) known to have begun after it, where one was heard.

        That is known of two of one boot of a machine; of all others, who is heard later is younger.
        """
        found = None
        other = self._newest.get((state.writer.role, state.writer.rank))
        while other is not None and other is not state and other.writer.boot == state.writer.boot:
            if not self.began_before(state, other):
                break
            found = other
            other = None if other.before is None else self.all[other.before]
        return found

    def incarnations(self, state: WriterState) -> list[int]:
        """Return the numbers of all incarnations of its (role, rank) that delivered a step, oldest first."""
        found: list[int] = []
        number = newest.number if (newest := self._newest.get((state.writer.role, state.writer.rank))) else None
        while number is not None:
            found.insert(0, number)
            number = self.all[number].before
        return found

    def newest(self, state: WriterState) -> WriterState:
        """Return the newest incarnation of its (role, rank) that delivered a step; itself where there is none."""
        return self._newest.get((state.writer.role, state.writer.rank), state)

    def enthrone(self, state: WriterState) -> None:
        """Make `state` the newest incarnation of its (role, rank), unless it is heard after one that follows it."""
        after = self.successor(state)
        if after is not None:
            state.before, after.before = after.before, state.number
            self.dirty.add(after.number)
            return
        before = self.predecessor(state)
        if before is not None:
            before.newest, state.before = False, before.number
        self.crown(state)

    def crown(self, state: WriterState) -> None:
        """Note that `state` is the newest incarnation of its (role, rank); it knows the one before it."""
        state.newest = True
        self._newest[state.writer.role, state.writer.rank] = state
