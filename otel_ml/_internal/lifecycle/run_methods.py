"""Recording calls as methods of a run: for it, whichever is current where they are called."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from otel_ml._internal.guard import guard
from otel_ml._internal.here import Inside, Scope
from otel_ml._internal.record.after_the_end import AFTER_THE_END
from otel_ml._internal.series.definition import Reduce
from otel_ml._internal.timers.timed_calls import timed_calls
from otel_ml._internal.timers.timing import timed

if TYPE_CHECKING:
    from otel_ml._internal.lifecycle.run import Run

__all__ = ["RunTimer", "RunTiming", "in_run"]

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def in_run(call: Callable[P, T]) -> Callable[Concatenate[Run, P], T | None]:
    """Return a recording call as a method of a run."""

    @wraps(call)
    def method(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        if run._scope.is_over:  # noqa: SLF001 (its own method)
            refuse(run, call.__name__)
            return None
        with Inside(run._scope):  # noqa: SLF001 (its own method)
            return call(*args, **kwargs)

    method.__doc__ = f"{(call.__doc__ or '').partition(chr(10))[0]} Into this run; see `otel_ml.{call.__name__}()`."
    return method


def refuse(run: Run, call: str) -> None:
    """Count what is recorded into a run that has ended, and say it once."""
    if AFTER_THE_END.is_now:
        AFTER_THE_END.refuse(1)
    else:
        guard.drop(
            "after_shutdown",
            f"{run!r}.{call}() came after the run had ended: it is not in any run. Call init() to begin a new one.",
            kind=f"after the end: {run.id}",
        )


class RunTiming:
    """`with run.timed("forward"):`; also a decorator."""

    __slots__ = ("_arguments", "_open", "_scope")

    def __init__(
        self, scope: Scope, name: str, level: int, reduce: Reduce, within: str | None, *, span: bool, device: str | None
    ) -> None:
        self._scope = scope
        self._arguments = (name, level, reduce, within, span, device)
        self._open: list[Any] = []

    def __enter__(self) -> Any:
        with Inside(self._scope):
            timing = timed(*self._arguments)
            self._open.append(timing)
            return timing.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with Inside(self._scope):
            self._open.pop().__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Time every call of `function`."""
        return timed_calls(function, lambda: RunTiming(self._scope, *self._arguments[:4], **self._options()))

    def _options(self) -> dict[str, Any]:
        return {"span": self._arguments[4], "device": self._arguments[5]}

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left."""
        return bool(self._open)


class RunTimer:
    """`run.timer("forward")`: started and stopped by hand."""

    __slots__ = ("_timing",)

    def __init__(self, timing: RunTiming) -> None:
        self._timing = timing

    def start(self) -> None:
        """Begin to measure."""
        self._timing.__enter__()

    def stop(self) -> None:
        """Stop the measurement begun last, and record it."""
        if not self._timing.is_open:
            guard.wrong("bad-timer", "A timer of a run was stopped and not started. Call start() first.")
            return
        self._timing.__exit__(None, None, None)
