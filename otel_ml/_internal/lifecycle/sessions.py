"""The runs of this process that are active, and which of them calls are for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping

from otel_ml._internal.lifecycle.child_environment import child_environ
from otel_ml._internal.lifecycle.exit_code import status_of_error
from otel_ml._internal.lifecycle.run import Run
from otel_ml._internal.lifecycle.session import Session
from otel_ml._internal.run_scope import CURRENT, NOW, SCOPES, current_scope

__all__ = ["Sessions"]


class Sessions:
    """In the order of their beginning; `SCOPES` says the same to recording calls. What a `Run` asks, too.

    Args:
        end: ends one: `end(session, timeout, status, error)`.
    """

    def __init__(self, end: Callable[..., bool]) -> None:
        self._end = end
        self._all: list[Session] = []

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, session: object) -> bool:
        return session in self._all

    @property
    def first(self) -> Session | None:
        """The one that was begun first, if there is one."""
        return next(iter(self), None)

    @property
    def running(self) -> list[Session]:
        """Those that go on."""
        return [session for session in self if session.is_running]

    @property
    def current(self) -> Session | None:
        """The run that calls are for, here; None where there is none, or none that goes on."""
        # With one run all contexts mean that one, so none is asked.
        scope = current_scope() if NOW.several else None
        return next((session for session in self.running if scope is None or session.scope is scope), None)

    def of(self, run: Run) -> Session | None:
        """Return that of a run, or None where it has ended."""
        return next((session for session in self if session.run is run), None)

    def same(self, arguments: Mapping[str, object]) -> Session | None:
        """Return the run that the same arguments have begun, or that has the id or the name they say, if it goes on."""
        given = {key: value for key, value in arguments.items() if value not in (None, ())}
        # By the same arguments first: a run that was given neither id nor name is found by these alone.
        found = [session for session in self.running if given and session.given == given]
        return next(iter(found or [session for session in self.running if _is_called(session.run, given)]), None)

    def add(self, session: Session) -> None:
        """Know of a run that begins."""
        self._all.append(session)
        self._tell()

    def remove(self, session: Session) -> None:
        """Forget a run that has ended."""
        self._all.remove(session)
        # Before `SCOPES` is told: who looks in between finds a run that is over, and goes on to its outer one.
        session.scope.is_over = True
        self._tell()

    def clear(self, kept: Session | None) -> list[Session]:
        """In a forked child: forget all of them, and return them; it has a part in `kept` alone."""
        before, self._all = self._all, []
        for session in before:
            # Or its methods would record into the one that is kept: with one run nobody is asked which is meant.
            session.scope.is_over = session is not kept
        self._tell()
        return before

    def make_current(self, session: Session) -> None:
        """Have calls in this context be for it, and after its end for the one before."""
        before, scope = CURRENT.get(), session.scope
        if before is scope:
            return
        # Never within itself: `current_scope()` goes from each to its outer one until one goes on.
        if scope.outer is None and before is not None and not before.is_within(scope):
            scope.outer = before
        CURRENT.set(scope)

    def enter(self, run: Run) -> None:
        """Note that a `with` block of `run` begins."""
        for session in self:
            session.blocks += session.run is run

    def leave(self, run: Run, error: BaseException | None) -> None:
        """End `run` with its outermost block, if it is active: a block may outlive its run."""
        session = self.of(run)
        if session is not None:
            session.blocks -= 1
            if session.blocks <= 0:
                self._end(session, status=status_of_error(error), error=error)

    def is_going_on(self, run: Run) -> bool:
        """Whether `run` has not ended."""
        session = self.of(run)
        return session is not None and session.is_running

    def end_run(self, run: Run, timeout: float | None = None) -> bool:
        """End `run`, if it goes on; return whether all was acknowledged in time."""
        session, error = self.of(run), sys.exc_info()[1]
        return True if session is None else self._end(session, timeout, status_of_error(error), error)

    def child_env_of(self, run: Run) -> dict[str, str]:
        """Return the variables by which a process elsewhere joins `run`."""
        session = self.of(run)
        return {} if session is None else child_environ(session.config, session.identity, os.environ)

    def flush_run(self, run: Run, timeout: float) -> bool:
        """Send what is recorded into `run`."""
        session = self.of(run)
        return True if session is None else session.flush(timeout)

    def _tell(self) -> None:
        SCOPES.active = [session.scope for session in self._all]
        SCOPES.default = next((session.scope for session in self._all if session.is_of_process), None)


def _is_called(run: Run, given: Mapping[str, object]) -> bool:
    """Whether arguments mean `run` by its id or, where they have none, by its name."""
    if "id" in given:
        return given["id"] == run.id
    return given.get("name") == run.name and given.get("experiment", run.experiment) == run.experiment
