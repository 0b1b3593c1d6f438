"""Which run of its launch a rank begins: experiment and name tell, whatever else each rank has begun before.

::

    rank 0: init("exp", name="prepare") ── run 0 ──▶ shutdown() ──▶ init("exp", name="train") ── run 1
    rank 1:                                                         init("exp", name="train") ── run 1

The ranks of a host write down what they have asked for. A name that is made of the time is another one on each rank:
times and random digits are left out, and runs that are then called alike are counted by each rank.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from otel_ml import env
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.common_file import UNWRITTEN, common_file
from otel_ml._internal.identity.launch_file import SUFFIX, started_by
from otel_ml._internal.identity.launcher_process import Process
from otel_ml._internal.identity.ranks import JobPlace
from otel_ml._internal.identity.started_by_hand import common_processes
from otel_ml.config import Config
from otel_ml.wire.rendezvous import rendezvous_of

__all__ = ["as_meant", "do_names_tell", "follow", "followers_of", "lose", "number_in_launch", "take_lost"]

_OF_PROCESSES = frozenset({"ray", "dask"})
"""Launchers whose ranks may be on several hosts without a word, and begin runs in any order."""


@dataclass(frozen=True, slots=True)
class AskedRun:
    """A run of a launch: its number, and what ranks have called it; None what none of them has said."""

    number: int
    experiment: str | None
    name: str | None

    def may_be(self, other: AskedRun) -> bool:
        """Whether what both say is the same."""
        said = (self.experiment, other.experiment), (self.name, other.name)
        return all(None in (one, another) or one == another for one, another in said)

    def joined_by(self, other: AskedRun) -> AskedRun:
        """Return this run with what `other` calls it, too."""
        return AskedRun(self.number, self.experiment or other.experiment, self.name or other.name)


@dataclass(slots=True)
class _Launch:
    """What is written down of a launch.

    Attributes:
        started_by: the process that has started it.
        runs: those that its ranks have asked for.
        followers: by the id of a run, the ranks that have joined it without having asked for one.
        lost: by rank, how much it held that has ended before a run was begun, and is not said yet.
    """

    started_by: Process
    runs: list[AskedRun] = field(default_factory=list)
    followers: dict[str, list[int]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def do_names_tell(place: JobPlace) -> bool:
    """Whether the ranks of a launch can write down for each other what they call their runs: all are on this host."""
    return place.world_size > 1 and place.hosts == 1 and place.launcher not in _OF_PROCESSES


def number_in_launch(launch: str, place: JobPlace, ppid: int, config: Config, begun: Collection[int]) -> int:
    """Return the number, from 0, of the run that this rank asks for; `begun` are those that it has begun before."""
    # A rank that says no experiment has the default: it may join a run of any experiment (docs/protocol.md §2.3).
    experiment = None if config.experiment == env.EXPERIMENT_NAME.default else as_meant(config.experiment)
    asked = AskedRun(0, experiment, as_meant(config.name) if config.name else None)
    try:
        with _written_down(launch, place, ppid) as written:
            return _joined(written, asked, begun)
    except OSError as error:
        reporter.say(
            "no-agreed-run",
            f"The ranks cannot write down which runs they begin: {type(error).__name__}: {error}. "
            "The first run of each is one run, and so is the second.",
            kind=UNWRITTEN,
        )
        return len(begun)


def follow(launch: str, place: JobPlace, ppid: int, run_id: str) -> None:
    """Write down that this rank has joined the run that rank 0 has begun."""
    with suppress(OSError), _written_down(launch, place, ppid) as written:
        ranks = {*written.followers.get(run_id, []), place.rank}
        written.followers[run_id] = sorted(ranks)


def followers_of(launch: str) -> dict[str, list[int]]:
    """Return the ranks of this host that have joined a run without having asked for one, by its id."""
    with suppress(OSError), common_file(_file_of(launch), 0) as file:
        written = _read(file.text)
        return written.followers if written else {}
    return {}


def lose(launch: str, place: JobPlace, ppid: int, values: int, is_begun: Callable[[], bool]) -> None:
    """Write down what this rank takes with it, unless rank 0 has begun a run by now.

    Rank 0 reads it after it has said that it has begun: one of the two knows of the other.
    """
    with suppress(OSError), _written_down(launch, place, ppid) as written:
        if not is_begun():
            rank = str(place.rank)
            written.lost[rank] = written.lost.get(rank, 0) + values


def take_lost(launch: str) -> dict[int, int]:
    """Return by rank of this host what it has lost so; nobody is told again."""
    with suppress(OSError), common_file(_file_of(launch), 0) as file:
        written = _read(file.text)
        if written is not None and written.lost:
            lost, written.lost = written.lost, {}
            file.write(_text(written))
            return {int(rank): values for rank, values in sorted(lost.items(), key=lambda each: int(each[0]))}
    return {}


def _joined(launch: _Launch, asked: AskedRun, begun: Collection[int]) -> int:
    found = next((run for run in launch.runs if run.number not in begun and run.may_be(asked)), None)
    if found is None:
        # A run in `begun` need not be in the file: when it began, nothing could be written.
        taken = {*begun, *(run.number for run in launch.runs)}
        found = AskedRun(next(number for number in itertools.count() if number not in taken), None, None)
    # Once a rank has said an experiment or a name, later ranks are compared with that, too.
    launch.runs = [*(run for run in launch.runs if run != found), found.joined_by(asked)]
    launch.runs.sort(key=lambda run: run.number)
    return found.number


_MADE_UP = re.compile(
    r"""
      [\da-f]{8} (?:-[\da-f]{4}){3} - [\da-f]{12}                  # a UUID
    | (?<![a-z\d]) (?=[\da-f]*[a-f])                            # random digits of base 16, not a word
      (?: (?=[a-f]*\d) [\da-f]{6,} | [a-f]{8,} ) (?![a-z\d])
    | \d{6,} (?:\.\d+)? (?:T\d{4,})? Z?                         # seconds since the epoch, a compact date, digits
    | \d{4}[-_./]\d\d[-_./]\d\d T?                             # a date
    | (?: (?:mon|tue|wed|thu|fri|sat|sun) \ )?
      (?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) \ * \d{1,2} (?![a-z\d])
    | (?<!\d) (?:0\d|1[012])[0-3]\d [-_] [012]\d[0-5]\d (?!\d)  # month, day, hour, and minute
    | (?: \d\d:\d\d (?::\d\d)?                                 # a time,
        | \d\d[-_.h]\d\d[-_.m]\d\d (?: [-_.]\d\d (?!\d) )?
      ) (?: [.,_]\d{3,9} )? (?: Z | [-+]\d\d:?\d\d )?           # and its zone
    | (?<=rank) [-_=:\ ]* \d+
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What ranks that mean one run write in different ways."""


_NO_SETTING = 9_999
"""A smaller number in a name may be the process id by chance: a seed, a year, the 50 of ResNet-50."""


def as_meant(text: str) -> str:
    """Return the words of a name but what each rank makes up for itself; a number such as that of a fold is a word.

    Examples:
        >>> as_meant("resnet_2026-11-27T20:31"), as_meant("train-1795817475.12 rank3"), as_meant("fold-12, lr=0.1")
        ('resnet', 'train rank', 'fold 12 lr 0 1')
    """
    pid = os.getpid()
    if pid > _NO_SETTING:
        text = re.sub(rf"(?<!\d){pid}(?!\d)", "", text)
    return " ".join(word for word in re.split(r"[\W_]+", _MADE_UP.sub("", text)) if word)


@contextmanager
def _written_down(launch: str, place: JobPlace, ppid: int) -> Iterator[_Launch]:
    with common_file(_file_of(launch), os.O_CREAT) as file:
        written = _read(file.text) or _Launch(common_processes(ppid, place.variable, place.rank)[-1])
        yield written
        if (text := _text(written)) != file.text:  # a disk that is full stops nobody who has nothing new
            file.write(text)


def _file_of(launch: str) -> str:
    return f"{rendezvous_of(launch).folder.name}.runs{SUFFIX}"


def _text(launch: _Launch) -> str:
    return json.dumps(asdict(launch) | started_by(launch.started_by))


def _read(text: str) -> _Launch | None:
    """Return what is written down; None where that is nothing, or nothing of a launch."""
    try:
        # The text may be empty, or of a version of otel_ml that writes other keys.
        found: dict[str, Any] = json.loads(text)
        pid, started = found["started_by"]
        runs = [AskedRun(**run) for run in found["runs"]]
        return _Launch((pid, started), runs, found["followers"], found.get("lost", {}))
    except (ValueError, KeyError, TypeError):
        return None
