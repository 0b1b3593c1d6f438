"""The run of a launch of several ranks: rank 0 decides which, the others join what it has begun.

::

    rank 0: init("digits", …) ──▶  launch.json: the variables by which a process joins the run
    others: log(…) without init() ── kept in memory ── launch.json is there ──▶ in that run

It lies in the rendezvous folder of the launch, and for other hosts in `OTEL_ML_DIR`, where other users may write, too:
it is followed where this user has written it, and says which run it is, never where to send.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.forks import parent_of_program
from otel_ml._internal.identity.launch_file import SUFFIX, started_by, sweep
from otel_ml._internal.identity.ranks import BY_HAND, JobPlace, detect
from otel_ml._internal.identity.run_identity import Identity, awaited_id, launched_by, launcher_id
from otel_ml._internal.identity.runs_of_launch import follow, followers_of, lose, take_lost
from otel_ml._internal.identity.started_by_hand import address, common_processes
from otel_ml._internal.lifecycle.child_environment import JOINED_BY
from otel_ml._internal.signal_mask import leave_signals_to_the_program
from otel_ml._internal.transport.multi_host import meeting_file
from otel_ml.config import Config
from otel_ml.wire.folder_ownership import read_ours
from otel_ml.wire.rendezvous import rendezvous_of, write_private

__all__ = [
    "Waiting",
    "announce",
    "decided",
    "has_joined",
    "is_of_several",
    "leave_unheard",
    "say_who_has_ended",
    "say_who_stays",
]

LOOK_S = 0.1
"""Seconds between looks for what rank 0 has decided; longer the longer it takes."""

LOOK_AT_MOST_S = 1.0


def is_of_several(environ: Mapping[str, str]) -> bool:
    """Whether a launcher says that this process is one of several ranks."""
    return detect(environ).world_size > 1


def announce(config: Config, identity: Identity, variables: Mapping[str, str]) -> None:
    """As rank 0 of a launch, say to the others which run it is."""
    if not _decides(identity):
        return
    # The place is that of the environment, whatever rank `init()` was given: ranks that have only the environment look
    # for these files (`decided()`).
    place = replace(detect(os.environ), role=config.role)
    content = json.dumps({**started_by(launched_by(place, parent_of_program())), "variables": {**variables}})
    for path in _files(config, place, launcher_id(place, parent_of_program(), 0)):
        with suppress(OSError):  # nobody waits, or those that do begin without
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, content)
    sweep(rendezvous_of(identity.run_id).folder.parent)


def _decides(identity: Identity) -> bool:
    return identity.place.rank == 0 and identity.place.world_size > 1 and identity.starter is None


def say_who_stays(config: Config, identity: Identity) -> None:
    """As rank 0 of a launch, say which ranks are in a run that was begun before: they do not begin this one."""
    if not _decides(identity):
        return
    place = replace(detect(os.environ), role=config.role)
    followers = followers_of(launcher_id(place, parent_of_program(), 0))
    others = {run_id: ranks for run_id, ranks in followers.items() if run_id != identity.run_id}
    for run_id, ranks in others.items():
        named = ", ".join(map(str, ranks[:8]))
        reporter.say(
            "ranks-stay",
            f"Rank 0 has begun run {config.experiment}/{identity.run_id}. Ranks {named} call no init() and go on "
            f"recording into run {run_id}. Call init() with the same name on all ranks.",
            kind="ranks-stay",
        )


def has_joined(config: Config, run_id: str, rank_pid: int) -> None:
    """As another rank, or what it has made, say to rank 0 that this one records into the run that it has begun."""
    place = replace(detect(os.environ), role=config.role, rank_pid=rank_pid)
    follow(awaited_id(place, parent_of_program()), place, parent_of_program(), run_id)


def leave_unheard(config: Config, rank_pid: int, values: int) -> bool:
    """As a rank that ends and in whose launch no run has begun, leave word of what it loses.

    Returns:
        whether rank 0 has begun one meanwhile: then nothing is lost.
    """
    place = replace(detect(os.environ), role=config.role, rank_pid=rank_pid)
    ppid = parent_of_program()
    is_begun = False

    def look() -> bool:
        nonlocal is_begun
        is_begun = decided(config, rank_pid) is not None
        return is_begun

    lose(_before_a_run(place), place, ppid, values, look)
    sweep(rendezvous_of("").folder.parent)
    return is_begun


def _before_a_run(place: JobPlace) -> str:
    """Name a launch whose id its ranks may only agree on when its run begins: by who starts them, and where they meet.

    A rank that ends before agrees on none: it would take the place of a rank of the program that follows.
    """
    starter = common_processes(parent_of_program(), place.variable, place.rank)[-1]
    return json.dumps([*starter, *address(place), place.trial])


def say_who_has_ended(config: Config, identity: Identity) -> None:
    """As rank 0 of a launch, count what ranks of this host held that have ended before this run began, and say it."""
    if not _decides(identity):
        return
    place = replace(detect(os.environ), role=config.role)
    lost = take_lost(_before_a_run(place))
    if not lost:
        return
    values = sum(lost.values())
    named = f"Rank{'s' if len(lost) > 1 else ''} {', '.join(map(str, sorted(lost)[:8]))}"
    # Here they are counted once: `take_lost()` has taken them out of the file.
    reporter.dropped["ended_before_init"] += values
    reporter.say(
        "ended-before-init",
        f"{named} had ended before rank 0 began run {config.experiment}/{identity.run_id}, and had recorded for it. "
        f"Values lost: {values:,}. Call init() on rank 0 before the other ranks end.",
        kind="ended-before-init",
    )


def decided(config: Config, rank_pid: int = 0) -> Mapping[str, str] | None:
    """Return what rank 0 has announced, or None while it has not; `rank_pid` is as in `JobPlace`."""
    place = replace(detect(os.environ), role=config.role, rank_pid=rank_pid)

    def is_of_this(said: Sequence[int]) -> bool:
        # On other hosts, and by hand, the id says it all; else an earlier start of the same name may have left it.
        is_told = place.hosts > 1 or place.launcher == BY_HAND
        return is_told or tuple(said) == launched_by(place, parent_of_program())

    for path in _files(config, place, awaited_id(place, parent_of_program())):
        try:
            found = json.loads(read_ours(path))
            if is_of_this(found["started_by"]):
                return {name: str(value) for name, value in found["variables"].items() if name in JOINED_BY}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return None


def _files(config: Config, place: JobPlace, launch: str) -> list[Path]:
    # Beside the rendezvous folder, which may be removed while ranks of the launch still look for this file.
    here = rendezvous_of(launch).folder.with_suffix(SUFFIX)
    return [here, meeting_file(config, launch).with_suffix(SUFFIX)] if place.hosts > 1 else [here]


class Waiting:
    """A thread that waits for what rank 0 decides.

    Args:
        look: begins the run if that is known by now, and returns whether there is one.
        give_up: begins a run without it, where the environment asks for one.
        timeout: seconds until then; None waits on.
    """

    def __init__(self, look: Callable[[], bool], give_up: Callable[[], None], timeout: float | None) -> None:
        self._look = look
        self._give_up = give_up
        self._timeout = timeout
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="otel_ml_waiting", daemon=True)

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def leave(self) -> None:
        """Stop: a run has begun."""
        self._is_over.set()

    def end(self, timeout: float) -> None:
        """At the exit of the process: wait a last time, then give up."""
        until = time.monotonic() + timeout
        while not self._is_over.is_set() and not self._look() and time.monotonic() < until:
            time.sleep(LOOK_S)
        # Without a timeout nothing asks for a run: what is kept is lost, and none is begun for it.
        if not self._is_over.is_set() and self._timeout is not None:
            self._give_up()

    def _wait(self) -> None:
        leave_signals_to_the_program()
        began = time.monotonic()
        pause = LOOK_S
        while not self._is_over.wait(pause):
            if self._look():
                return
            waited = time.monotonic() - began
            if self._timeout is not None and waited >= self._timeout:
                self._give_up()
                return
            # A twentieth of the time waited so far, within the two bounds: who waits long looks seldom.
            pause = min(LOOK_AT_MOST_S, max(LOOK_S, waited / 20))
