"""Recording calls as methods of a run: for it, whichever is current where they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.run_scope import NOBODY, SCOPES, InScope, Scope
from otel_ml._internal.signature import public_type, publish_method
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.timers.manual_timer import Timer
from otel_ml._internal.timers.timed_calls import timed_calls
from otel_ml._internal.timers.timing import name_of, timed

if TYPE_CHECKING:
    from otel_ml._internal.lifecycle.run import Run

__all__ = ["RunTimer", "RunTiming", "asked_of_run", "in_run", "inside"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def in_run(call: Callable[P, T]) -> Callable[[Callable[[Run], object]], Callable[Concatenate[Run, P], T | None]]:
    """Make a method of a run of a recording call: its arguments, and the name and description that are decorated."""

    def as_method(described: Callable[[Run], object]) -> Callable[Concatenate[Run, P], T | None]:
        @wraps(described)
        def method(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
            if run._scope.is_over:  # noqa: SLF001 (its own method)
                if AFTER_SHUTDOWN.is_now:
                    return call(*args, **kwargs)  # which counts what it is given, as of a call of the module
                _refuse(run, described.__name__)
                return None
            with InScope(run._scope):  # noqa: SLF001 (its own method)
                return call(*args, **kwargs)

        publish_method(method, call)
        return method

    return as_method


def asked_of_run(
    call: Callable[P, T], after: T
) -> Callable[[Callable[[Run], object]], Callable[Concatenate[Run, P], T]]:
    """Make a method of a run of a call that records nothing; of a run that has ended it returns `after`."""

    def as_method(described: Callable[[Run], object]) -> Callable[Concatenate[Run, P], T]:
        @wraps(described)
        def method(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if run._scope.is_over:  # noqa: SLF001 (its own method)
                return after
            with InScope(run._scope):  # noqa: SLF001 (its own method)
                return call(*args, **kwargs)

        publish_method(method, call)
        return method

    return as_method


def _refuse(run: Run, call: str) -> None:
    """Count what is recorded into a run that has ended while another one goes on, and say it once."""
    NOBODY.dropped["after_shutdown"] += 1  # the run that goes on has lost nothing
    reporter.wrong(
        "after-shutdown",
        f"{run!r}.{call}() came after the run had ended, or in a fork that has no part in it, as of a program with "
        "several runs: it is not in any run. Call init() to begin a new one.",
        kind=f"after the end: {run.id}",
    )


def inside(scope: Scope) -> InScope:
    """Return the context of calls for a run; of one that has ended, nobody's, as another run may be going on."""
    if not scope.is_over:
        return InScope(scope)
    if SCOPES.active:
        FOLDER.share_out(STEPS)  # from now on calls ask whose they are, also where one run goes on
    return InScope(NOBODY)


@public_type
class RunTiming:
    """`with run.timed("forward"):`; also a decorator. Threads and tasks that share one measure each their own time."""

    __slots__ = ("_name", "_open", "_options", "_scope")

    def __init__(self, scope: Scope, name: Any, options: Mapping[str, Any]) -> None:
        self._scope = scope
        self._name = name
        self._options = options
        self._open: dict[Any, None] = {}

    def __enter__(self) -> Any:
        with inside(self._scope):
            timing = timed(self._name, **self._options)
            self._open[timing] = None
            # What others have left meanwhile is left out, or the context would keep all that ever began in it.
            _ENTERED.set(((self, timing), *[pair for pair in _ENTERED.get() if pair[1] in pair[0]._open]))  # noqa: SLF001
            return timing.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timing = self._taken()
        if timing is not None:
            with inside(self._scope):
                timing.__exit__(kind, error, trace)

    def _taken(self) -> Any:
        """Take what this context has entered last; where it has entered none, what another one has."""
        # A timing in this tuple may have been taken meanwhile by another context, in which case it is not in `_open`.
        for owner, timing in _ENTERED.get():
            if owner is self and self._open.pop(timing, timing) is None:  # not left yet
                return timing
        with suppress(KeyError):
            return self._open.popitem()[0]
        return None

    def __call__(self, function: F) -> F:
        """Time every call of `function`."""
        name = self._name or name_of(function)
        return timed_calls(function, lambda: RunTiming(self._scope, name, self._options))


_ENTERED: ContextVar[tuple[tuple[RunTiming, Any], ...]] = ContextVar("otel_ml_run_timings", default=())
"""What a context has entered, the newest first."""


@public_type
class RunTimer:
    """`run.timer("forward")`: `otel_ml.timer()` for a run, whichever is current where it is started and stopped."""

    __slots__ = ("_scope", "_timer")

    def __init__(self, scope: Scope, timer: Timer) -> None:
        self._scope = scope
        self._timer = timer

    @answered
    def start(self) -> None:
        """Begin to measure."""
        with inside(self._scope):
            self._timer.start()

    @answered
    def stop(self) -> None:
        """Stop what this thread or task began last and record it; where it began none, what another one did."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Any:
        with inside(self._scope):
            return self._timer.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with inside(self._scope):
            self._timer.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Time every call of `function`."""
        return timed_calls(function, lambda: RunTimer(self._scope, self._timer))
