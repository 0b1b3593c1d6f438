"""The runs of this process that are active, and which of them calls are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from otel_ml._internal.axes import NOW
from otel_ml._internal.here import CURRENT, SCOPES, here
from otel_ml._internal.run import Run
from otel_ml._internal.session import Session

__all__ = ["Sessions"]


class Sessions:
    """In the order of their beginning; `SCOPES` says the same to recording calls."""

    def __init__(self) -> None:
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
        scope = here() if NOW.several else None
        return next((session for session in self.running if scope is None or session.scope is scope), None)

    def of(self, run: Run) -> Session | None:
        """Return that of a run, or None where it has ended."""
        return next((session for session in self if session.run is run), None)

    def same(self, arguments: Mapping[str, object]) -> Session | None:
        """Return the run that the same arguments have begun, if it goes on."""
        given = {key: value for key, value in arguments.items() if value not in (None, ())}
        return next((session for session in self.running if given and session.given == given), None)

    def add(self, session: Session) -> None:
        """Know of a run that begins."""
        self._all.append(session)
        self._tell()

    def remove(self, session: Session) -> None:
        """Forget a run that has ended."""
        self._all.remove(session)
        session.scope.is_over = True
        self._tell()

    def clear(self) -> list[Session]:
        """In a forked child: forget all of them, and return them."""
        before, self._all = self._all, []
        self._tell()
        return before

    def make_current(self, session: Session) -> None:
        """Have calls in this context be for it, and after its end for the one before."""
        before = CURRENT.get()
        if before is session.scope:
            return
        if session.scope.outer is None and before is not None and before.outer is not session.scope:
            session.scope.outer = before
        CURRENT.set(session.scope)

    def _tell(self) -> None:
        SCOPES.active = [session.scope for session in self._all]
        SCOPES.default = next((session.scope for session in self._all if session.is_of_process), None)
