"""`timer("x").start()` and `.stop()`: a timer by hand, for code that no block fits around."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Literal, TypeVar

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.reduction_arguments import Reduce
from otel_ml._internal.signature import public, public_type, publish
from otel_ml._internal.timers.no_span import NO_SPAN
from otel_ml._internal.timers.spans import leave
from otel_ml._internal.timers.timer_definitions import TIMERS, TimerDefinition, checked_level, timer_definition
from otel_ml._internal.timers.timing import OFF, Timing, timed_function, timing_of

__all__ = ["Timer", "forget_timers", "timer", "timer_of"]

F = TypeVar("F", bound=Callable[..., Any])


@public_type
class Timer:
    """`timer("forward")`: started and stopped by hand, for code that no block fits around.

    What runs between is not nested under its span. Started again before it was stopped, it measures twice. Threads and
    tasks that use the same timer measure each their own time. It is a block and a decorator, too, as `timed()` is.
    """

    __slots__ = ("_definition", "_running")

    def __init__(self, definition: TimerDefinition | None) -> None:
        self._definition = definition
        self._running: dict[Timing | _Unmeasured, None] = {}

    @answered
    def start(self) -> None:
        """Begin to measure."""
        definition = self._definition
        timing: Timing | _Unmeasured = _Unmeasured()
        if definition is not None and definition.level <= NOW.level:
            timing = timing_of(definition).__enter__()
            if timing.span_id:
                # It may stop in another context: nothing nests under it.
                leave(timing)
        self._running[timing] = None
        # What others have stopped meanwhile is left out, or the context would keep all that ever began in it.
        _STARTED.set(((self, timing), *[pair for pair in _STARTED.get() if pair[0].is_running(pair[1])]))

    @answered
    def stop(self) -> None:
        """Stop what this thread or task began last and record it; where it began none, what another one did."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Any:
        self.start()
        timing = _STARTED.get()[0][1]
        return timing if isinstance(timing, Timing) else NO_SPAN

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        timing = self._taken()
        if timing is None:
            name = self._definition.name if self._definition is not None else "?"
            reporter.wrong("bad-timer", f"Timer {name!r:.80} was stopped and not started. Call start() first.")
        elif isinstance(timing, Timing):
            timing.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Time every call of `function`."""
        return function if self._definition is None else timed_function(function, self._definition)

    def is_running(self, timing: Timing | _Unmeasured) -> bool:
        """Whether a measurement was not stopped yet."""
        return timing in self._running

    def _taken(self) -> Timing | _Unmeasured | None:
        for timer, timing in _STARTED.get():
            # The value of a key that is there is None, and the default is not: so one call tells whether it was
            # running, and takes it.
            if timer is self and self._running.pop(timing, timing) is None:  # not stopped yet
                return timing
        with suppress(KeyError):
            return self._running.popitem()[0]
        return None

    def compare(self, level: int, *, span: bool, device: str | None) -> None:
        """Say what is asked for and not used: a timer that is started here may be stopped there, it is one."""
        definition = self._definition
        if definition is None:
            return
        options = (("level", level, 1), ("span", span, True), ("device", device, None))
        unused = [
            f"{name}={safe_repr(new)}"
            for name, new, usual in options
            # An option with its usual value need not have been said, so it contradicts nothing.
            if not isinstance(new, (int, str, type(None))) or new not in {usual, getattr(definition, name)}
        ]
        if unused:
            reporter.wrong(
                "bad-timer",
                f"Timer {definition.name!r:.80} is known with level={definition.level}, span={definition.span}, "
                f"device={definition.device!r}, so {', '.join(unused)} is not used. "
                "Give its options where it is made first.",
            )


class _Unmeasured:
    """What a timer above the level has begun."""

    __slots__ = ()


_STARTED: ContextVar[tuple[tuple[Timer, Timing | _Unmeasured], ...]] = ContextVar("otel_ml_started", default=())
"""What timers have begun in a context, the newest first."""


_TIMERS: dict[tuple[str, str], Timer] = {}
"""By run, where it is one's own, and name."""


@public
@publish("name")
@answered
def timer(
    name: str,
    level: int = 1,
    reduce: Reduce = None,
    within: str | None = None,
    span: bool = True,
    device: str | None = None,
    kind: Literal["work", "wait"] | None = None,
) -> Timer:
    """Return the timer of this name, to be started and stopped by hand; the arguments are those of `timed()`."""
    return timer_of("", name, level, reduce, within, span=span, device=device, kind=kind)


def timer_of(
    run_id: str,
    name: str,
    level: int,
    reduce: Reduce,
    within: str | None,
    *,
    span: bool,
    device: str | None,
    kind: Literal["work", "wait"] | None,
) -> Timer:
    """Return the timer of this name of a run: of two runs that time the same each stops what it has started."""
    asked = checked_level(level, name)
    definition = timer_definition(name, asked, reduce, within, span=span, device=device, kind=kind)
    if definition is None:
        return Timer(None)
    # One for all threads and calls: who stops finds what another one has started.
    found = _TIMERS.setdefault((run_id, name), Timer(definition))
    found.compare(asked, span=span, device=device)
    return found


def forget_timers() -> None:
    """Define timers anew at their next use."""
    TIMERS.clear()
    OFF.clear()
    _TIMERS.clear()
