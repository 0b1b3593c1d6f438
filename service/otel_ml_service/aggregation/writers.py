"""All writers of a run, found by what they say of themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Writers"]

_LEFT_FOR_S = 5.0
"""How soon what a dismissed process had left on a disk is heard: Ray takes longer until a next one could begin."""

_SILENT_S = 10.0
"""For how long a process that lives may be unheard: it says so once a second, through a Collector perhaps."""


class Writers:
    """All writers of the run, found by their resource.

    Attributes:
        all: by number.
        dirty: numbers of those whose state is to be committed.
        described: numbers of those whose resource is to be committed.
        begins_anew: what was remembered of them is gone: what of them arrived before is not known.
    """

    def __init__(self) -> None:
        self.all: list[WriterState] = []
        self._by_instance: dict[tuple[str, str], WriterState] = {}
        self._newest: dict[tuple[str, int], WriterState] = {}
        self._of_ranks: dict[tuple[str, int], list[WriterState]] = {}
        self._least_lag: dict[str, float] = {}
        self._newest_beat: dict[str, float] = {}
        self.dirty: set[int] = set()
        self.described: set[int] = set()
        self.begins_anew = False
        self._dismissing: dict[str, float] = {}

    def __iter__(self) -> Iterator[WriterState]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, number: int) -> WriterState:
        return self.all[number]

    def begin_anew(self, begins_anew: bool) -> None:
        """Say whether what was remembered of them is gone; those that are added from here on are told."""
        self.begins_anew = begins_anew

    def knows(self, writer: Writer) -> bool:
        """Whether `writer` has a state."""
        return (writer.role, writer.instance) in self._by_instance

    def named(self, role: str, instance: str) -> WriterState | None:
        """Return the state of a writer that was heard."""
        return self._by_instance.get((role, instance))

    def of(self, writer: Writer) -> WriterState:
        """Return the state of `writer`, known or new."""
        state = self._by_instance.get((writer.role, writer.instance))
        if state is None:
            return self.add(writer)
        if state.writer is not writer:
            if state.writer.rank != writer.rank:
                self._of_ranks = {}
            state.describe(writer)
            self.described.add(state.number)
        return state

    def add(self, writer: Writer, pool: str | None = None) -> WriterState:
        """Number a new writer; it pools with its parent, as far as that is known."""
        parent = self._by_instance.get((writer.role, writer.parent)) if writer.parent is not None else None
        pool = pool or (parent.source.pool if parent is not None else writer.parent or writer.instance)
        # Writers are never removed: their count is the next number, and the number is the place in `all`.
        state = WriterState(len(self.all), writer, pool, begins_anew=self.begins_anew)
        self.all.append(state)
        self.described.add(state.number)
        self._by_instance[writer.role, writer.instance] = state
        self._of_ranks = {}
        return state

    def of_rank(self, role: str, rank: int) -> Sequence[WriterState]:
        """Return all that say they are a rank, its children among them, in the order in which they were heard first."""
        if not self._of_ranks:  # once for all: a job has as many ranks as it has writers
            for one in self.all:
                self._of_ranks.setdefault((one.writer.role, one.writer.rank), []).append(one)
        return self._of_ranks.get((role, rank), ())

    def dismiss_those_of(self, starter: WriterState, said_at: float, now: float) -> None:
        """Expect no shutdown message of those who were started by a writer that has said to end them, and lived then.

        Args:
            starter: the writer.
            said_at: when it said so, by the clock of its host.
            now: when that is heard.
        """
        self._dismissing[starter.writer.instance] = now
        for one in self.all:
            # Processes that the service can look at are of its own host, and as a rule their starter is, too.
            lived = one.alive_at >= now - _SILENT_S if one.gone_at is None else one.gone_at >= said_at
            if lived and one.writer.starter == starter.writer.instance:
                self._dismiss(one)

    def dismiss_if_late(self, state: WriterState, now: float) -> None:
        """Do so of one that is heard for the first time, shortly after that: from what it had left on a disk."""
        said_at = self._dismissing.get(state.writer.starter or "", -math.inf)
        if now <= said_at + _LEFT_FOR_S:
            self._dismiss(state)

    def _dismiss(self, state: WriterState) -> None:
        state.dismiss()
        self.dirty.add(state.number)

    def parent_of(self, state: WriterState) -> WriterState | None:
        """Return the parent's state, where it was heard."""
        parent = state.writer.parent
        return None if parent is None else self._by_instance.get((state.writer.role, parent))

    def predecessor(self, state: WriterState) -> WriterState | None:
        """Return the incarnation of its (role, rank) before it, if that has delivered a step."""
        if state.before is not None:
            return self.all[state.before]
        newest = self._newest.get((state.writer.role, state.writer.rank))
        if newest is state or self.replacement(state) is not None:
            return None  # the oldest
        return newest

    def lived(self, state: WriterState, boot_s: float, time_ns: int, now: float) -> None:
        """Note that a heartbeat arrived that was taken at `boot_s` of the clock of the writer's boot.

        What arrives late, from the spool of a dead one above all, is dated by what of the same boot arrived soonest.
        """
        boot, lag = state.writer.boot, now - boot_s
        state.beat(boot_s, time_ns, lag)
        self._newest_beat[boot] = max(boot_s, self._newest_beat.get(boot, 0.0))
        dated = [state]
        if lag < self._least_lag.get(boot, math.inf):
            self._least_lag[boot] = lag
            # It traveled faster than any other: all of its boot began, and lived, that much earlier than was thought.
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
        # It has sent no heartbeat with the time of its boot: only the service's clock tells.
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
        # By one machine's clock; else by two that the heartbeats of their boots date; else by when they were heard.
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
        # From the newest one back, as long as they began after it.
        other = self._newest.get((state.writer.role, state.writer.rank))
        while other is not None and other is not state and other.writer.boot == state.writer.boot:
            if not self.began_before(state, other):
                break
            found = other
            other = None if other.before is None else self.all[other.before]
        return found

    def replacement(self, state: WriterState) -> WriterState | None:
        """Return the incarnation of its (role, rank) right after it that delivered a step."""
        after = self._newest.get((state.writer.role, state.writer.rank))
        while after is not None and after.before != state.number:
            after = None if after.before is None else self.all[after.before]
        return after

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
            # It was heard after the one that followed it, and takes its place in between.
            state.follow(after.before)
            after.follow(state.number)
            self.dirty.add(after.number)
            return
        before = self.predecessor(state)
        if before is not None:
            before.step_down()
            state.follow(before.number)
        self.crown(state)

    def crown(self, state: WriterState) -> None:
        """Note that `state` is the newest incarnation of its (role, rank); it knows the one before it."""
        state.crown()
        self._newest[state.writer.role, state.writer.rank] = state
