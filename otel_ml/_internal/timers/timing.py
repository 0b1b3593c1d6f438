"""`with timed("forward")` and `@timed`: a measurement, which is its own span; above the level it is nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import repeat
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Literal, NoReturn, TypeVar, overload

from otel_ml._internal.devices.device_timers import DEVICE_TIMERS, DeviceElapsed
from otel_ml._internal.error_reporting import reporter, say_unused
from otel_ml._internal.native import native
from otel_ml._internal.record.append import append
from otel_ml._internal.record.relieve import relieve
from otel_ml._internal.run_scope import NOW, SCOPES, InScope
from otel_ml._internal.safe_repr import text_of
from otel_ml._internal.series.buffer import LIMIT, RECORDS
from otel_ml._internal.series.definition import SPANS_OVER_BUDGET
from otel_ml._internal.series.reduction_arguments import Reduce
from otel_ml._internal.signature import public, public_type, publish
from otel_ml._internal.steps.axes import STEPS, current_step
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.timers.no_span import NO_SPAN, NoSpan
from otel_ml._internal.timers.spans import MAX_WAITING, SPANS, STATE, Details, Recording, keep, leave
from otel_ml._internal.timers.timed_calls import timed_calls
from otel_ml._internal.timers.timer_definitions import TIMERS, TimerDefinition, checked_level, timer_definition

__all__ = ["OFF", "Timing", "name_of", "timed", "timing_of"]

F = TypeVar("F", bound=Callable[..., Any])


@public_type
class Timing(Recording):
    """One measurement, and its span. Also the object of `with timed("x")`.

    It has no `__init__`: `timing_of` fills it in a third of the time.
    """

    __slots__ = ("event",)

    begin_ns: int
    end_ns: int
    step: Step
    more: Details | None
    event: DeviceElapsed | None

    def __enter__(self) -> Timing:
        if self.begin_ns:
            return _enter_again(self)
        self.step = step = NOW.step or current_step()
        definition = self.definition
        self.more = None
        if definition.span and step.spans < STATE.budget:
            step.spans += 1
            self.end_ns = 0
            begin = STATE.begin
            begin(self)
        else:
            # No span is kept: what a program says to `as span` is lost, and does not raise.
            self.span_id = self.trace_id = 0
            self.end_ns = 1  # not 0: `is_recording()` is false
            if definition.span and STATE.budget:
                _over_budget(step)
        self.event = None if definition.device is None else DEVICE_TIMERS.begin()
        self.begin_ns = perf_counter_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_ns = perf_counter_ns()
        if _AGAIN.used and (inner := _innermost(self)) is not self:
            inner.__exit__(kind, error, trace)
            return
        step: Step | None = self.step
        if step.ended:  # type: ignore[union-attr]
            step = _step_at_end(self.step)
        if self.span_id:
            # None of a timer by hand, which has left its context where it was started.
            if self.token is not None:
                leave(self)
            self.end_ns = end_ns
            if kind is not None:
                self.details.error = f"{kind.__name__}: {text_of(error)}"
            if step is not None:
                keep(self)
        if step is None:
            return
        value: float | DeviceElapsed = (end_ns - self.begin_ns) / 1e9
        if self.event is not None and DEVICE_TIMERS.end(self.event):
            value = self.event
        records = RECORDS
        # One call of C: no record of another thread comes between its four items.
        records += (self.definition.series, step, value, end_ns + STATE.offset_ns)
        if len(records) > LIMIT:
            relieve()

    def __call__(self, function: F) -> F:
        """Time every call of `function`."""
        return timed_function(function, self.definition)


if native is not None:
    Timing.__enter__, Timing.__exit__ = native.timing_methods(  # type: ignore[method-assign]
        Timing, Timing.__enter__, Timing.__exit__
    )


def timing_of(definition: TimerDefinition) -> Timing:
    """Return a measurement that has not begun."""
    timing = Timing()
    timing.definition = definition
    timing.begin_ns = 0
    return timing


def _over_budget(step: Step) -> None:
    append((SPANS_OVER_BUDGET, step, 1.0, perf_counter_ns() + STATE.offset_ns))


def _step_at_end(step: Step) -> Step | None:
    """Return where a timer counts whose step has ended; None for one of a run that is over, or of the parent."""
    if NOW.several:
        scope = SCOPES.of(step.generation)
        if scope is None:
            return None
        with InScope(scope):
            now = current_step()
    elif step.generation != STEPS.generation:
        return None
    else:
        now = current_step()
    # No step is current: it counts where it began.
    return step if now.index is None else now


def timed_function(function: F, definition: TimerDefinition) -> F:
    """Return `function` with every call timed."""

    def measured() -> Timing | None:
        return timing_of(definition) if definition.level <= NOW.level else None

    return timed_calls(function, measured)


class _Again:
    """Measurements of `with` objects that are entered again: in other tasks, or inside themselves.

    The object itself is the record of its first measurement, so each further one gets an object of its own,
    found again at exit by the context it was entered in.

    Attributes:
        used: some object was entered again. Before that no timer pays for a look into its context.
        entered: (object, its measurement) of what this context has entered again, the newest first.
    """

    __slots__ = ("entered", "used")

    def __init__(self) -> None:
        self.used = False
        self.entered: ContextVar[tuple[tuple[Timing, Timing], ...]] = ContextVar("otel_ml_again", default=())


_AGAIN = _Again()


def _enter_again(outer: Timing) -> Timing:
    _AGAIN.used = True
    inner = timing_of(outer.definition).__enter__()
    _AGAIN.entered.set(((outer, inner), *_AGAIN.entered.get()))
    return inner


def _innermost(outer: Timing) -> Timing:
    entered = _AGAIN.entered.get()
    for place, (known, inner) in enumerate(entered):
        if known is outer:
            _AGAIN.entered.set(entered[:place] + entered[place + 1 :])
            return inner
    return outer


class _Off:
    """A timer above the level: its `with` costs two calls of C functions. What a program says to `as span` is lost."""

    __slots__ = ("_definition",)

    # Functions of C are not bound to the object. `"".format` takes any arguments and returns "", which is false: what
    # the block raises goes on.
    __enter__ = repeat(NO_SPAN).__next__
    __exit__ = "".format

    def __init__(self, definition: TimerDefinition | None) -> None:
        self._definition = definition

    def __call__(self, function: F) -> F:
        """Time every call of `function`, once the level allows it."""
        return function if self._definition is None else timed_function(function, self._definition)


if native is not None:
    _Off.__enter__, _Off.__exit__ = native.always(NO_SPAN), native.nothing

_NOTHING = _Off(None)
"""A timer whose name is none: said and counted, the code under it runs all the same."""


OFF: dict[str, _Off] = {}
"""Timers above the level, by name."""


@overload
def timed(name: F, /) -> F: ...
@overload
def timed(
    name: str | None = None,
    /,
    *,
    level: int = 1,
    reduce: Reduce = None,
    within: str | None = None,
    span: bool = True,
    device: str | None = None,
    kind: Literal["work", "wait"] | None = None,
) -> Timing: ...
@public
@publish("name")
def timed(
    name: Any = None,
    /,
    level: int = 1,
    reduce: Reduce = None,
    within: str | None = None,
    span: bool = True,
    device: str | None = None,
    kind: Literal["work", "wait"] | None = None,
    *more: NoReturn,
    **unknown: NoReturn,
) -> Any:
    """Time a `with` block, or every call of a function: `time/<name>` in seconds, and a span.

    The times of a rank in a step are summed, and the slowest rank counts (`sum>max`). A timer counts at the
    step current when it began; if that has ended when it stops, at the one then current. A function may be
    sync, async, a generator (what it spends itself, from each resumption to the next yield) or a method.

    Args:
        name: of the timer; by default the function's `__qualname__`.
        level: timers above `OTEL_ML_TIMER_LEVEL` cost a look-up and measure nothing.
        reduce: across ranks, `max` by default; said in one place, on one rank, it is so for the run.
        within: how the times of one rank in a step combine, `sum` by default; the same.
        span: also keep a span, within the budget of `OTEL_ML_SPANS_PER_STEP`.
        device: `"cuda"` measures on the current CUDA stream, by events; nothing waits for the device.
        kind: `"wait"` where the time goes by waiting for other ranks: nobody is called slow for it. `"work"` where it
            does not, whatever the name says. By default the name tells: `all_reduce`, `recv`, `barrier`, … wait.
            Said on one rank, it is so for the role.
        more: not used: said, as any other mistake.
        unknown: the same, but for `name=`.
    """
    if more or unknown:
        name = _meant(name, more, unknown)
    try:
        if level > NOW.level:
            return OFF[name]
        # What a call would cost:
        is_usual = reduce is None and within is None and span is True and device is None and kind is None
        definition = TIMERS[name if is_usual else (name, reduce, within, span, device, kind)]
    except Exception:  # noqa: BLE001 (first seen, or neither a name nor a level, which is reported there)
        return _timed(name, level, reduce, within, span=span, device=device, kind=kind)
    timing = Timing()  # as timing_of() does, without the call
    timing.definition = definition
    timing.begin_ns = 0
    return timing


if native is not None:
    native.bind_timers(
        Timing,
        Recording,
        TimerDefinition,
        Step,
        STATE,
        _AGAIN,
        NOW,
        SPANS,
        TIMERS,
        OFF,
        keep,
        leave,
        perf_counter_ns,
        DEVICE_TIMERS.begin,
        DEVICE_TIMERS.end,
        MAX_WAITING,
    )
    timed = native.timed_function(timed)


def _meant(name: Any, more: tuple[object, ...], named: dict[str, Any]) -> Any:
    """Return the name of a call whose arguments are others."""
    if name is None:
        name = named.pop("name", None)
    if more or named:
        say_unused(timed, more, named)
    return name


def _timed(name: Any, level: Any, *reduction: Any, **options: Any) -> Any:
    level = checked_level(level, name)
    if name is None:
        return _Unnamed(lambda function: _decorated(function, level, *reduction, **options))
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        return _decorated(name, level, *reduction, **options)
    definition = timer_definition(name, level, *reduction, **options)
    if definition is None:
        return _NOTHING
    return timing_of(definition) if level <= NOW.level else OFF.setdefault(name, _Off(definition))


class _Unnamed:
    """`@timed()`, which has its name from the function; as a block it has none, and measures nothing."""

    __slots__ = ("_decorate",)

    def __init__(self, decorate: Callable[[Any], Any]) -> None:
        self._decorate = decorate

    def __call__(self, function: Any) -> Any:
        return self._decorate(function)

    def __enter__(self) -> NoSpan:
        reporter.wrong("bad-timer", "timed() has no name, and a block has none to give. Call timed('forward').")
        return NO_SPAN

    def __exit__(self, *_: object) -> None:
        return None


def name_of(function: Any) -> str:
    """Return the name of a timer that has none but its function's."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _decorated(function: Any, level: int, *reduction: Any, **options: Any) -> Any:
    definition = timer_definition(name_of(function), level, *reduction, **options)
    return function if definition is None else timed_function(function, definition)
