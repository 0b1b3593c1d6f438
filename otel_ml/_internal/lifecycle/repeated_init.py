"""What an `init()` means where a run may be active: nothing, more of it, another one, or the parent's (ADR 0023)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.forks import creator
from otel_ml._internal.identity.run_identity import Identity, identify
from otel_ml._internal.lifecycle.child_environment import handed_on
from otel_ml._internal.lifecycle.init_arguments import another_run, changes, checked, new_arguments, of_a_writer, shown
from otel_ml._internal.lifecycle.run_of_trial import is_of_another_trial
from otel_ml._internal.lifecycle.session import EXIT_TIMEOUT, Session
from otel_ml._internal.lifecycle.sessions import Sessions
from otel_ml._internal.lifecycle.tell_others import TellOthers
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.series import buffer
from otel_ml._internal.steps.step import set_step
from otel_ml.config import Config

__all__ = ["RepeatedInit"]


class Runs(Protocol):
    """Who begins and ends runs."""

    others: TellOthers

    @property
    def current(self) -> Session | None:
        """The run that calls are for, here."""

    def begin_session(self, arguments: Mapping[str, Any]) -> Session:
        """Begin the run that is asked for."""

    def started(self, config: Config, identity: Identity, arguments: Mapping[str, object]) -> Session:
        """Begin a run."""

    def end(self, session: Session, timeout: float | None = None) -> bool:
        """End a run."""


class RepeatedInit:
    """What happens at every `init()` but the first one."""

    def __init__(self, runs: Runs, sessions: Sessions) -> None:
        self._runs = runs
        self._sessions = sessions

    def session_of(self, arguments: Mapping[str, Any]) -> Session:
        """Return the run that is meant; one that begins where none is. The lock is held by the caller.

        Raises:
            ConfigError: arguments are wrong.
        """
        # What a second `init()` means depends on who calls it: the same training code again (nothing), another trial of
        # a search (a new run), a forked child (its parent's run, or its own place in it), a program whose environment
        # began a run at import (take over), or really another run (ADR 0023).
        session = self._runs.current
        if session is not None and is_of_another_trial(session.identity.place):
            self._runs.end(session, EXIT_TIMEOUT)
            session = self._runs.current
        if session is None:
            return self._beside(arguments)
        # Nothing of the child is in the parent's run yet, so it can leave that without a trace.
        if session.is_asleep and self._is_other(session, arguments):
            self._leave_parents_run(session)
            return self._runs.begin_session(arguments)
        if session.is_asleep and (place := of_a_writer(arguments)):
            session = self._take_place(session, place)
        # After the child of a fork has taken its place: `session` may be another one by now.
        changed = self._changes(session, arguments)
        if session.is_left_for_init and changed:
            return self._begin_anew(session, arguments, changed)
        has_joined = session.identity.parent is not None and creator() != 0  # a worker, by what it recorded
        if (session.is_explicit or has_joined) and self._is_other(session, arguments):
            if has_joined:
                self._sessions.make_current(session)  # again, once the other one has ended
            return self._beside(arguments)
        self._again(session, arguments, changed)
        return session

    def _beside(self, arguments: Mapping[str, Any]) -> Session:
        """Go back to the run that is meant, or begin another one."""
        session = self._sessions.same(arguments)
        if session is None:
            return self._runs.begin_session(arguments)
        self._again(session, arguments, self._changes(session, arguments))
        return session

    def _leave_parents_run(self, session: Session) -> None:
        """In a forked child that begins a run of its own: it was never in its parent's."""
        self._sessions.remove(session)
        recorder.forget()
        buffer.stay_awake()

    def _take_place(self, session: Session, arguments: Mapping[str, Any]) -> Session:
        """In a forked child: where it says a place of its own, join the parent's run as a spawned child does."""
        environ = handed_on(session.config, session.identity, os.environ, self._runs.others.given_environ())
        config = checked(arguments, environ)
        identity = identify(config, environ)
        # Rank and role are still those of the parent, so it stays a child in the run that it has.
        if identity.parent is not None:
            return session
        self._leave_parents_run(session)
        return self._runs.started(config, identity, arguments)

    def _begin_anew(self, session: Session, arguments: Mapping[str, Any], changed: list[str]) -> Session:
        """End the run that the environment had asked for, and begin the one that the program asks for (ADR 0023)."""
        checked(arguments, os.environ)  # who is told that something is wrong keeps the run
        asked, before = shown(arguments, changed), f"{session.run.experiment}/{session.run.id}"
        steps = session.recorder.current_steps()
        self._runs.end(session, EXIT_TIMEOUT)
        AFTER_SHUTDOWN.leave()
        for axis, step in steps.items():
            set_step(step, axis=axis)
        begun = self._runs.begin_session(arguments)
        reporter.say(
            "init-late",
            f"init({asked}) came after something was recorded, for which the environment had asked for a run: what was "
            f"recorded before is in run {before}. Call init() first.",
        )
        return begun

    def _again(self, session: Session, arguments: Mapping[str, Any], changed: list[str]) -> None:
        """A second `init()`: the same is nothing, what was missing is added, the rest is reported."""
        session.trial_params.record(session.identity.place, session.scope)
        new = new_arguments(arguments, session.arguments)
        if "topology" in new:
            addition = Config.from_env(topology=new["topology"])
            session.describe(topology={**session.config.topology, **addition.topology})
        if changed:
            reporter.wrong(
                "init-again",
                f"init({shown(new, changed)}) while a run is active changes nothing. Expected the same arguments as "
                "before; call shutdown() first to begin a new run.",
            )

    def _changes(self, session: Session, arguments: Mapping[str, Any]) -> list[str]:
        is_so = replace(session.config, id=session.run.id, name=session.run.name)
        return changes(new_arguments(arguments, session.arguments), is_so, session.identity.place)

    def _is_other(self, session: Session, arguments: Mapping[str, Any]) -> bool:
        run = session.run
        return another_run(arguments, run.experiment, run.name, run.id)
