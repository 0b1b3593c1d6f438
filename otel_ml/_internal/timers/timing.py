"""Timers: `with timed("forward")`, `@timed`, `timer("x").start()`; each level and form on its own path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Literal, NoReturn, TypeVar, overload

from otel_ml._internal.devices.device_timers import DEVICE_TIMERS, DeviceElapsed
from otel_ml._internal.error_reporting import reporter, say_unused
from otel_ml._internal.native import native
from otel_ml._internal.record.append import append
from otel_ml._internal.record.fold import relieve
from otel_ml._internal.run_scope import NOW, SCOPES, InScope
from otel_ml._internal.safe_repr import safe_repr
from otel_ml._internal.series.buffer import LIMIT, RECORDS
from otel_ml._internal.series.definition import DEFINITIONS, SPANS_OVER_BUDGET, Reduce, reduction_from
from otel_ml._internal.signature import public, public_type, publish
from otel_ml._internal.steps.axes import STEPS, Step, current_step
from otel_ml._internal.timers.spans import MAX_WAITING, SPANS, STATE, Details, Recording, TimerDefinition, keep, leave
from otel_ml._internal.timers.timed_calls import timed_calls
from otel_ml.wire.reduction import Reduction

__all__ = ["Timer", "Timing", "forget_timers", "name_of", "timed", "timer", "timing_of", "watch_named"]

F = TypeVar("F", bound=Callable[..., Any])

_KINDS = ("work", "wait")

_SLOWEST = Reduction(("max",), "sum", unsaid=("across", "within"))
"""What a timer is by default: the slowest rank's total in the step."""


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
        watch = self.watch
        self.more = None
        if watch.span and step.spans < STATE.budget:
            step.spans += 1
            self.end_ns = 0
            begin = STATE.begin
            begin(self)
        else:
            # No span is kept: what a program says to `as span` is lost, and does not raise.
            self.span_id = self.trace_id = 0
            self.end_ns = 1
            if watch.span and STATE.budget:
                _over_budget(step)
        self.event = None if watch.device is None else DEVICE_TIMERS.begin()
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
            if self.token is not None:
                leave(self)
            self.end_ns = end_ns
            if kind is not None:
                self.details.error = f"{kind.__name__}: {error}"
            if step is not None:
                keep(self)
        if step is None:
            return
        value: float | DeviceElapsed = (end_ns - self.begin_ns) / 1e9
        if self.event is not None and DEVICE_TIMERS.end(self.event):
            value = self.event
        records = RECORDS
        records += (self.watch.series, step, value, end_ns + STATE.offset_ns)
        if len(records) > LIMIT:
            relieve()

    def __call__(self, function: F) -> F:
        """Time every call of `function`."""
        return timed_function(function, self.watch)


if native is not None:
    Timing.__enter__, Timing.__exit__ = native.timing_methods(  # type: ignore[method-assign]
        Timing, Timing.__enter__, Timing.__exit__
    )


def timing_of(watch: TimerDefinition) -> Timing:
    """Return a measurement that has not begun."""
    timing = Timing()
    timing.watch = watch
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
    return step if now.index is None else now


def timed_function(function: F, watch: TimerDefinition) -> F:
    """Return `function` with every call timed."""

    def measured() -> Timing | None:
        return timing_of(watch) if watch.level <= NOW.level else None

    return timed_calls(function, measured)


class _Again:
    """Measurements of `with` objects that are entered again: in other tasks, or inside themselves.

    The object itself is the record of its first measurement, so each further one gets an object of its own,
    found again at exit by the context it was entered in.
    """

    __slots__ = ("entered", "used")

    def __init__(self) -> None:
        self.used = False
        self.entered: ContextVar[tuple[tuple[Timing, Timing], ...]] = ContextVar("otel_ml_again", default=())


_AGAIN = _Again()


def _enter_again(outer: Timing) -> Timing:
    _AGAIN.used = True
    inner = timing_of(outer.watch).__enter__()
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
    """A timer above the level: its `with` costs two calls of C functions that return something false."""

    __slots__ = ("_watch",)

    __enter__ = bool
    __exit__ = "".format

    def __init__(self, watch: TimerDefinition | None) -> None:
        self._watch = watch

    def __call__(self, function: F) -> F:
        """Time every call of `function`, once the level allows it."""
        return function if self._watch is None else timed_function(function, self._watch)


if native is not None:
    _Off.__enter__ = _Off.__exit__ = native.nothing

_NOTHING = _Off(None)
"""A timer whose name is none: said and counted, the code under it runs all the same."""


_WATCHES: dict[object, TimerDefinition] = {}
"""By name; where a call has more options than a level, by all of them."""

_OFF: dict[str, _Off] = {}


def watch_named(
    name: str,
    level: int = 1,
    reduce: Reduce = None,
    within: str | None = None,
    *,
    span: bool = True,
    device: str | None = None,
    kind: str | None = None,
) -> TimerDefinition | None:
    """Return the timer of this name, made at first sight; None (said) where the name is not one."""
    try:
        key = name if _is_usual(reduce, within, span, device, kind) else (name, reduce, within, span, device, kind)
        watch = _WATCHES.get(key)
    except TypeError:  # a list of reductions: no key
        watch = key = None
    if watch is None:
        watch = _new_watch(name, level, reduce, within, span=span, device=device)
        if watch is not None and kind is not None:
            _declare(watch.name, kind)
        if watch is None or key is None:
            return watch
        _WATCHES[key] = watch
    if watch.level == level:
        return watch
    return _WATCHES.setdefault(
        (key, level), TimerDefinition(name, watch.series, level, span=watch.span, device=watch.device)
    )


def _is_usual(reduce: Reduce, within: str | None, span: bool, device: str | None, kind: str | None) -> bool:
    return reduce is None and within is None and span is True and device is None and kind is None


def _declare(name: str, kind: str) -> None:
    """Know whether a timer measures work or waiting; who compares ranks is told once."""
    if kind not in _KINDS:
        reporter.wrong(
            "bad-timer",
            f"Timer {name!r:.80}: expected kind 'work', 'wait' or None, got {safe_repr(kind)}. "
            "Its kind is told from its name.",
        )
    elif (known := DEFINITIONS.timers.setdefault(name, kind)) != kind:
        reporter.wrong(
            "bad-timer", f"Timer {name!r:.80} is of kind {known!r} in this process, so kind={kind!r} is not used."
        )


def _new_watch(
    name: str, level: int, reduce: Reduce, within: str | None, *, span: bool, device: str | None
) -> TimerDefinition | None:
    reduction = reduction_from(reduce, within, None, name)
    full = f"time/{name}" if isinstance(name, str) and name else name
    series = DEFINITIONS.series(full, reduction=reduction, unit="s", default=_SLOWEST)
    if series is None:
        return None
    if device not in {None, "cuda"}:
        reporter.wrong(
            "bad-timer",
            f"Timer {name!r:.80}: expected device 'cuda' or None, got {safe_repr(device)}. It is timed on the CPU.",
        )
        device = None
    return TimerDefinition(name, series, level, span=span, device=device)


def _look_up(metric: str) -> None:
    """Use what is known of a timer by now."""
    for watch in [watch for watch in list(_WATCHES.values()) if f"time/{watch.name}" == metric]:
        watch.series = DEFINITIONS.series(metric) or watch.series


DEFINITIONS.outdated.append(_look_up)


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
        unknown: not used: said, as any other mistake.
    """
    if unknown:
        say_unused("timed", (), unknown)
    try:
        if level > NOW.level:
            return _OFF[name]
        # What a call would cost:
        is_usual = reduce is None and within is None and span is True and device is None and kind is None
        watch = _WATCHES[name if is_usual else (name, reduce, within, span, device, kind)]
    except (KeyError, TypeError):  # first seen, or neither a name nor a level, which is reported there
        return _timed(name, level, reduce, within, span=span, device=device, kind=kind)
    timing = Timing()  # as timing_of() does, without the call
    timing.watch = watch
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
        _WATCHES,
        _OFF,
        keep,
        leave,
        perf_counter_ns,
        DEVICE_TIMERS.begin,
        DEVICE_TIMERS.end,
        MAX_WAITING,
    )
    timed = native.timed_function(timed)


def _timed(name: Any, level: Any, *reduction: Any, **options: Any) -> Any:
    level = _level(level, name)
    if name is None:
        return _Unnamed(lambda function: _decorated(function, level, *reduction, **options))
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        return _decorated(name, level, *reduction, **options)
    watch = watch_named(name, level, *reduction, **options)
    if watch is None:
        return _NOTHING
    return timing_of(watch) if level <= NOW.level else _OFF.setdefault(name, _Off(watch))


class _Unnamed:
    """`@timed()`, which has its name from the function; as a block it has none, and measures nothing."""

    __slots__ = ("_decorate",)

    def __init__(self, decorate: Callable[[Any], Any]) -> None:
        self._decorate = decorate

    def __call__(self, function: Any) -> Any:
        return self._decorate(function)

    def __enter__(self) -> _Unnamed:
        reporter.wrong("bad-timer", "timed() has no name, and a block has none to give. Call timed('forward').")
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _level(level: Any, name: object) -> int:
    if isinstance(level, int):
        return level
    reporter.wrong(
        "bad-timer",
        f"Timer {safe_repr(name)}: expected a level that is a whole number, got {safe_repr(level)}. It is 1.",
    )
    return 1


def name_of(function: Any) -> str:
    """Return the name of a timer that has none but its function's."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _decorated(function: Any, level: int, *reduction: Any, **options: Any) -> Any:
    watch = watch_named(name_of(function), level, *reduction, **options)
    return function if watch is None else timed_function(function, watch)


@public_type
class Timer:
    """`timer("forward")`: started and stopped by hand, for code that no block fits around.

    What runs between is not nested under its span. Started again before it was stopped, it measures twice. Threads and
    tasks that use the same timer measure each their own time.
    """

    __slots__ = ("_running", "_watch")

    def __init__(self, watch: TimerDefinition | None) -> None:
        self._watch = watch
        self._running: dict[Timing | _Unmeasured, None] = {}

    def start(self) -> None:
        """Begin to measure."""
        watch = self._watch
        timing: Timing | _Unmeasured = _Unmeasured()
        if watch is not None and watch.level <= NOW.level:
            timing = timing_of(watch).__enter__()
            if timing.span_id:
                # It may stop in another context: nothing nests under it.
                leave(timing)
        self._running[timing] = None
        _STARTED.set(((self, timing), *[pair for pair in _STARTED.get() if pair[0].is_running(pair[1])]))

    def stop(self) -> None:
        """Stop what this thread or task began last and record it; where it began none, what another one did."""
        timing = self._taken()
        if timing is None:
            name = self._watch.name if self._watch is not None else "?"
            reporter.wrong("bad-timer", f"Timer {name!r:.80} was stopped and not started. Call start() first.")
        elif isinstance(timing, Timing):
            timing.__exit__(None, None, None)

    def is_running(self, timing: Timing | _Unmeasured) -> bool:
        """Whether a measurement was not stopped yet."""
        return timing in self._running

    def _taken(self) -> Timing | _Unmeasured | None:
        for timer, timing in _STARTED.get():
            if timer is self and self._running.pop(timing, timing) is None:  # not stopped yet
                return timing
        with suppress(KeyError):
            return self._running.popitem()[0]
        return None

    def compare(self, level: int, *, span: bool, device: str | None) -> None:
        """Say what is asked for and not used: a timer that is started here may be stopped there, it is one."""
        watch = self._watch
        if watch is None:
            return
        options = (("level", level, 1), ("span", span, True), ("device", device, None))
        unused = [f"{name}={new!r}" for name, new, usual in options if new not in {usual, getattr(watch, name)}]
        if unused:
            reporter.wrong(
                "bad-timer",
                f"Timer {watch.name!r:.80} is known with level={watch.level}, span={watch.span}, "
                f"device={watch.device!r}, so {', '.join(unused)} is not used. "
                "Give its options where it is made first.",
            )


class _Unmeasured:
    """What a timer above the level has begun."""

    __slots__ = ()


_STARTED: ContextVar[tuple[tuple[Timer, Timing | _Unmeasured], ...]] = ContextVar("otel_ml_started", default=())
"""What timers have begun in a context, the newest first."""


_TIMERS: dict[str, Timer] = {}


@public
@publish("name")
def timer(
    name: str,
    level: int = 1,
    reduce: Reduce = None,
    within: str | None = None,
    span: bool = True,
    device: str | None = None,
    kind: Literal["work", "wait"] | None = None,
    **unknown: NoReturn,
) -> Timer:
    """Return the timer of this name, to be started and stopped by hand; the arguments are those of `timed()`."""
    say_unused("timer", (), unknown)
    asked = _level(level, name)
    watch = watch_named(name, asked, reduce, within, span=span, device=device, kind=kind)
    if watch is None:
        return Timer(None)
    found = _TIMERS.setdefault(name, Timer(watch))
    found.compare(asked, span=span, device=device)
    return found


def forget_timers() -> None:
    """Define timers anew at their next use."""
    _WATCHES.clear()
    _OFF.clear()
    _TIMERS.clear()
