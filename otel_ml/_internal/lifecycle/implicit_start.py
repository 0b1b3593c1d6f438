"""The run that the first record begins: where the environment asks for one, or rank 0 of the launch has begun it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from otel_ml import env
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.child_environment import is_launch_of_its_own
from otel_ml._internal.lifecycle.init_arguments import say_problems
from otel_ml._internal.lifecycle.join_parent import child_of_rank, rank_that_made_this, told_by_parent
from otel_ml._internal.lifecycle.join_rank_zero import Waiting, decided, has_joined, is_of_several, leave_unheard
from otel_ml._internal.lifecycle.run_ids import RunIds
from otel_ml._internal.lifecycle.run_requested import is_run_requested, is_worker
from otel_ml._internal.lifecycle.session import Session
from otel_ml._internal.lifecycle.sessions import Sessions
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.series import buffer
from otel_ml._internal.series.buffer import RECORDS
from otel_ml._internal.timers.spans import SPANS
from otel_ml.config import Config
from otel_ml.exceptions import OtelMLError

__all__ = ["ImplicitStart"]

TIMEOUT_WITH_RANK_0 = 5.0
"""Seconds that ranks without an `init()` keep what they record in memory, where the environment asks for a run, until
they begin it without rank 0's."""

TIMEOUT_AT_EXIT = 2.0
"""The same at the exit of a process."""


def _is_rank_0_to_say() -> bool:
    """Whether the environment leaves it open which run the launch is: what it names may be that of who started it."""
    return not os.environ.get(env.EXPERIMENT_ID.name) or is_launch_of_its_own(os.environ)


def _as_child(config: Config, rank_pid: int) -> dict[str, str]:
    """Return the environment as a rank sees it that no writer has started, or a process that this rank has made."""
    environ = {name: value for name, value in os.environ.items() if name != env.PARENT.name}
    return {**environ, **child_of_rank(config, environ, rank_pid)} if rank_pid else environ


class Starter(Protocol):
    """Who begins runs."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while one begins."""

    def started(self, config: Config, identity: Identity, arguments: Mapping[str, object]) -> Session:
        """Begin a run."""

    def run_it(self, session: Session) -> None:
        """Begin to record."""


class ImplicitStart:
    """What happens at the first record of a process that has called no `init()`."""

    def __init__(self, starter: Starter, sessions: Sessions, ids: RunIds) -> None:
        self._starter = starter
        self._sessions = sessions
        self._ids = ids
        self._waiting: Waiting | None = None
        self._only_joins = False

    @property
    def is_waiting(self) -> bool:
        """Whether what is recorded is kept until rank 0 has begun the run."""
        return self._waiting is not None

    def start(self) -> None:
        """Begin a run, or begin to wait for one, if that is asked for; the lock is held by the caller."""
        session = self._sessions.first
        if session is not None:
            if session.is_asleep:
                self._starter.run_it(session)
        elif self._waiting is None:
            self._begin()

    def _begin(self) -> None:
        # Before all else: what `multiprocessing` has made belongs to its parent's run, whatever its variables ask for.
        if told := told_by_parent():
            self._start_from({**os.environ, **told})
        elif self._only_joins:
            self._sleep_on()
        elif is_of_several(os.environ) and _is_rank_0_to_say():
            self._wait_for_rank_0()
        elif is_run_requested():
            self._start_from(os.environ)
        else:
            self._sleep_on()

    def _sleep_on(self) -> None:
        """Keep nothing; a worker asks again at the next record whether its parent has a run, and for nothing else."""
        self._only_joins = True
        RECORDS.clear()
        SPANS.clear()
        if is_worker():
            buffer.sleep()
        else:
            recorder.enabled = False

    def begun(self) -> None:
        """A run has begun: wait no longer."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.leave()

    def end(self) -> None:
        """At the exit of the process: wait a last time; where no run has begun, leave word of what is lost.

        Nobody waits in what a rank has made: the rank waits for that, and may be the one that begins the run.
        """
        waiting = self._waiting
        if waiting is None:
            return
        rank_pid = rank_that_made_this(os.environ)
        if rank_pid:
            self._look_for_rank_0()
        else:
            waiting.end(TIMEOUT_AT_EXIT)
        # A look that has begun a run has set `_waiting` to None, by `begun()`.
        is_lost = self._waiting is waiting and recorder.held > 0
        # Rank 0 has begun a run since the last look: nothing is lost, it is joined now.
        if is_lost and leave_unheard(Config.from_env(), rank_pid, recorder.held):
            self._look_for_rank_0()

    def forget(self) -> None:
        """In a forked child nobody waits. Of a parent that would begin no run at a record the child begins none."""
        waiting, self._waiting = self._waiting, None
        self._only_joins = waiting is None and not recorder.enabled

    def _wait_for_rank_0(self) -> None:
        """Keep what is recorded until rank 0 of the launch, which may be this process, has said which run it is."""
        if not self._look_for_rank_0():
            timeout = TIMEOUT_WITH_RANK_0 if is_run_requested() else None
            self._waiting = Waiting(self._look_for_rank_0, self._start_alone, timeout)
            self._waiting.start()

    def _look_for_rank_0(self) -> bool:
        # The thread that waits and the end of the process may look at the same time: one of them begins the run.
        with self._starter.lock:
            if self._sessions:
                return True
            if told := told_by_parent():
                self._start_from({**os.environ, **told})
                return bool(self._sessions)
            config, rank_pid = Config.from_env(), rank_that_made_this(os.environ)
            if (variables := decided(config, rank_pid)) is not None:
                self._start_from({**_as_child(config, rank_pid), **variables})
                # Rank 0 reads it when it begins its next run, which this rank does not join (`say_who_stays()`).
                has_joined(config, variables[env.EXPERIMENT_ID.name], rank_pid)
            return bool(self._sessions)

    def _start_alone(self) -> None:
        with self._starter.lock:
            if not self._sessions:
                rank_pid = rank_that_made_this(os.environ)
                self._start_from(_as_child(Config.from_env(), rank_pid) if rank_pid else os.environ)

    def _start_from(self, environ: Mapping[str, str]) -> None:
        try:
            config = Config.from_env(environ)
            say_problems(config)
            identity = self._ids.identify(config, environ)
            session = self._starter.started(config, identity, {})
            session.is_explicit, session.is_of_process = False, True
            # Not one that others may be in as well, by its id, as children or as ranks: an `init()` leaves it alone
            # (ADR 0023).
            session.is_left_for_init = not config.id and not config.parent and identity.place.is_alone
            session.say_misspelled()
        except (OtelMLError, OSError) as error:
            recorder.enabled = False
            reporter.say("nothing-recorded", f"Nothing is recorded: {error}")
