"""Which start the ranks belong to that a shell or a program has started itself: with their numbers, or as functions.

Nothing that they are given tells one start from the next: the shell is the same, and so is the port. So the ranks of a
host write down who has joined, in a file that only this user can read, and the first of a start gives it its id.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.common_file import UNWRITTEN, common_file
from otel_ml._internal.identity.launcher_process import (
    Process,
    ancestors,
    forked_from,
    is_alive,
    launcher_process,
    ranks_below,
    start_time,
)
from otel_ml._internal.identity.ranks import BY_HAND, JobPlace
from otel_ml.wire.pid_namespace import pid_namespace

__all__ = ["address", "awaited_start", "common_processes", "joined_start"]

_FILE = "starts-by-hand-4-{namespace}.json"
"""The number is that of its form: another version of otel_ml does not read it. Nor does a container, whose processes
have numbers of their own."""


@dataclass(frozen=True, slots=True)
class Member:
    """A process that has joined a start.

    Attributes:
        role: ranks count anew in each.
        size: how many ranks the role has.
        process: the one that it is.
        command: a digest of it; a rank that is started again has the same one.
        attempt: how many starts of this rank came before, where the launcher counts them.
        above: processes that have led to it, below who starts the ranks: what one of these starts may be here first.
    """

    role: str
    rank: int
    size: int
    process: Process
    command: str
    attempt: int = 0
    above: tuple[Process, ...] = ()

    def is_same_rank(self, other: Member) -> bool:
        """Whether two processes have one place."""
        return (self.role, self.rank) == (other.role, other.rank)


@dataclass(frozen=True, slots=True)
class Start:
    """One start: its id, what its ranks were told, who may have started them, and who has joined."""

    id: str
    told: str
    starters: list[Process] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)

    def may_have(self, member: Member) -> bool:
        """Whether the role of a rank has its size here, or has not come yet."""
        return all(one.size == member.size for one in self.members if one.role == member.role)

    def takes(self, member: Member) -> bool:
        """Whether a rank is one of this start: it has not come yet, or comes again while others of it run.

        A launcher that starts all ranks of a start again says so to each.
        """
        same = [one for one in self.members if one.is_same_rank(member)]
        if not same:
            return True
        if member.attempt:
            return all(one.attempt < member.attempt for one in same)
        # The rank is still there, so this is one of another start; or another program has come in its place.
        if any(is_alive(one.process) or one.command != member.command for one in same):
            return False
        # Where none of them lives, the start is over, and this rank begins the next one.
        return any(is_alive(one.process) for one in self.members)


def common_processes(ppid: int, variable: str, rank: int) -> list[Process]:
    """Return the processes that may have started all ranks, the nearest first.

    A rank may have a copy of the shell for itself: `( … ) &`. One that has started other ranks, too, is the one.
    """
    launcher = launcher_process(ppid, variable)
    copies = list(forked_from(launcher)) if variable else []
    # Only where there are copies: it looks at all processes of the machine.
    if copies and ranks_below(launcher, variable) - {str(rank)}:
        copies = []
    return [(pid, start_time(pid)) for pid in (launcher, *copies)]


def joined_start(place: JobPlace, ppid: int, before: int, proposed: str) -> str:
    """Return the id of this process's start, which it joins, or begins as `proposed`.

    An empty text, and said, where nothing can be written down. Called again, or by a process that a rank has started,
    it is the same one.
    """
    rank = _Rank.of(place, ppid, before)
    try:
        with _starts(os.O_CREAT) as starts:
            return rank.joined(starts) or rank.begun(starts, proposed)
    except OSError as error:
        reporter.say(
            "no-agreed-run",
            f"The ranks cannot write down which start they belong to: {type(error).__name__}: {error}. "
            "Their run is that of the process that has started them.",
            kind=UNWRITTEN,
        )
        return ""


def awaited_start(place: JobPlace, ppid: int, before: int) -> str:
    """Join the start that another rank has begun and return its id; an empty text, and nothing written, without one."""
    with suppress(OSError), _starts(0) as starts:
        return _Rank.of(place, ppid, before).joined(starts)
    return ""


@dataclass(frozen=True, slots=True)
class _Rank:
    """This process, who may have started it, and what it was told."""

    member: Member
    starters: Sequence[Process]
    told: str

    @classmethod
    def of(cls, place: JobPlace, ppid: int, before: int) -> _Rank:
        command = hashlib.sha256("\0".join(_command()).encode("utf-8", "surrogatepass")).hexdigest()
        # What a rank has made joins as its rank, which comes later and is not a second one (ADR 0068).
        pid = place.rank_pid or os.getpid()
        process = (pid, start_time(pid))
        starters = common_processes(ppid, place.variable, place.rank)
        above = tuple(itertools.takewhile(lambda one: one not in starters, ancestors(pid)))
        return cls(
            Member(place.role, place.rank, place.world_size, process, command, place.attempt or 0, above),
            starters,
            json.dumps([*address(place), place.trial, before]),
        )

    def joined(self, starts: Sequence[Start]) -> str:
        alike = [start for start in starts if start.told == self.told and start.may_have(self.member)]
        # This process, what has led to it, or what it has led to may be in a start already: it does not join once more.
        family = {self.member.process, *ancestors(self.member.process[0])}
        known = [start for start in alike if any(one.process in family or self._led_to(one) for one in start.members)]
        if known:
            return known[-1].id
        # The nearest starter decides, and of its starts the newest one.
        by_starter = (start for one in self.starters for start in reversed(alike) if one in start.starters)
        newest = next(by_starter, None)
        return self._join(newest) if newest is not None and newest.takes(self.member) else ""

    def _led_to(self, other: Member) -> bool:
        """Whether the other is what this rank has started, and was first."""
        return self.member.process in other.above and self.member.is_same_rank(other)

    def begun(self, starts: list[Start], proposed: str) -> str:
        starts.append(Start(proposed, self.told))
        return self._join(starts[-1])

    def _join(self, start: Start) -> str:
        start.members.append(self.member)
        start.starters.extend(one for one in self.starters if one not in start.starters)
        return start.id


def _command() -> list[str]:
    """Return the command of this process; of one that `multiprocessing` has started that of its parent.

    Its own has the numbers of pipes.
    """
    return sys.argv if "--multiprocessing-fork" in sys.orig_argv else sys.orig_argv


def address(place: JobPlace) -> list[str | None]:
    """Return where the ranks of a start meet; a launch of torch may have another port when it starts them again."""
    if place.launcher == BY_HAND:
        return [os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")]
    return [place.launcher, place.job, place.logs]


@contextmanager
def _starts(create: int) -> Iterator[list[Start]]:
    """Yield the starts that ranks may still join, to be changed while nobody else does; `create` as in open(2)."""
    with common_file(_FILE.format(namespace=pid_namespace() or 0), create) as file:
        # A start whose starters have all ended gets no further ranks.
        starts = [start for start in _read(file.text) if any(is_alive(starter) for starter in start.starters)]
        known = _text(starts)
        yield starts
        if (text := _text(starts)) != known:  # who is in one already has nothing to write
            file.write(text)


def _text(starts: Sequence[Start]) -> str:
    return json.dumps([asdict(start) for start in starts])


def _read(text: str) -> list[Start]:
    """Return what is written down; nothing where that has not the form of one."""
    try:
        return [_start(one) for one in json.loads(text)]
    except (ValueError, KeyError, TypeError):
        return []


def _start(one: Mapping[str, Any]) -> Start:
    members = [_member(each) for each in one["members"]]
    return Start(one["id"], one["told"], [_process(each) for each in one["starters"]], members)


def _member(one: Mapping[str, Any]) -> Member:
    above = tuple(_process(each) for each in one["above"])
    return Member(**{**one, "process": _process(one["process"]), "above": above})


def _process(written: Sequence[int]) -> Process:
    pid, started = written
    return pid, started
