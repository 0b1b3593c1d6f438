"""`steps(loader)`: a training loop that needs no call to set or end its steps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from otel_ml._internal.error_reporting import answered, reporter
from otel_ml._internal.run_scope import NOW, InScope, Scope
from otel_ml._internal.signature import MISSING, public, public_type, publish
from otel_ml._internal.steps.axes import Steps, scope_steps
from otel_ml._internal.steps.axis import Axis, Step
from otel_ml._internal.steps.step import bad_axis, bad_step, step_of
from otel_ml._internal.timers.loader_position import UnexpectedNumbers, first_number
from otel_ml._internal.timers.timer_definitions import timer_definition
from otel_ml._internal.timers.timing import Timing, timing_of
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["StepLoop", "steps"]

T = TypeVar("T")


@public_type
class StepLoop(Generic[T]):
    """What `steps()` returns; as long as what it iterates over."""

    def __init__(self, iterable: Iterable[T] | AsyncIterable[T], start: int | None, axis: str) -> None:
        self._iterable: Any = iterable  # what it is not is reported by Python, where it is iterated over
        self._start = start
        self._axis = axis
        self._scope: Scope | None = None

    def of(self, scope: Scope) -> StepLoop[T]:
        """Return the loop as one of a run, whichever is current where it is iterated over."""
        self._scope = scope
        return self

    def __len__(self) -> int:
        return len(self._iterable)  # without a length it raises what the iterable raises

    def __iter__(self) -> Iterator[T]:
        if NOW.off or self._is_within_another() or self._is_of_a_stage():
            yield from self._iterable
            return
        loop = _Counted(self._axis, self._start, first_number(self._iterable), self._scope)
        iterator = iter(self._iterable)
        try:
            while True:
                loop.wait()
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                loop.begin(item)
                try:
                    yield item
                finally:
                    # Also where the body has raised, or has left the loop: that closes the generator here.
                    loop.end()
        finally:
            loop.leave()

    def __aiter__(self) -> AsyncIterator[T]:
        if NOW.off or self._is_within_another() or self._is_of_a_stage():
            return aiter(self._iterable)
        return _AsyncLoop(self._counted_async, _Counted(self._axis, self._start, None, self._scope))

    def _is_of_a_stage(self) -> bool:
        """Whether all of it belongs to the step that training has come to: the stage is recorded there, which is said.

        Before training has a step the loop counts: a program that only evaluates has these steps alone.
        """
        steps = self._steps()
        stage = steps.stage.get() if steps.staged and self._axis == DEFAULT_AXIS else None
        if stage is None:
            return False
        if stage.name is None:  # nothing in it is recorded
            return True
        if self._start is not None or not steps.axis(self._axis).is_entered:
            return False
        said = _IN_A_STAGE.format(stage=stage.name)
        reporter.say("steps-inside", said, f"steps in stage {stage.name}")
        return True

    def _steps(self) -> Steps:
        return scope_steps() if self._scope is None else self._scope.steps

    def _is_within_another(self) -> bool:
        """Whether another loop on the same axis is around this one: its step goes on, which is said."""
        steps = self._steps()
        around = _AROUND.get()
        while around is not None and not around.is_around(self._axis, steps):
            around = around.outer
        if around is not None:
            reporter.say("steps-inside", _INSIDE.format(axis=self._axis), f"steps inside of steps on {self._axis}")
        return around is not None

    async def _counted_async(self, loop: _Counted) -> AsyncGenerator[T, None]:
        # As `__iter__()`; where the loop is left by `break`, `_AsyncLoop.__del__()` knows it first.
        iterator = aiter(self._iterable)
        try:
            while True:
                loop.wait()
                try:
                    item = await anext(iterator)
                except StopAsyncIteration:
                    return
                loop.begin(item)
                try:
                    yield item
                finally:
                    loop.end()
        finally:
            loop.leave()


_INSIDE = (
    "steps() inside of steps() on axis {axis!r}: the step stays that of the outer loop, to which all values of the "
    "inner one belong. Give the outer loop another axis where the inner one is to count: steps(epochs, axis='epoch')."
)

_IN_A_STAGE = (
    "steps() in the stage {stage!r}: the step stays the one that training has come to, to which all values of the "
    "stage belong. Give the loop an axis of its own where it is to count: steps(loader, axis={stage!r})."
)

_AFTER_A_STAGE = (
    "steps() begins at step {index}: a loop in a stage has counted those before, on the same axis. On ranks that were "
    "not in that stage it begins at 0. Give the loop of the stage an axis of its own: steps(…, axis='eval')."
)

_AFTER_BLOCK_0 = (
    "steps() begins at step 1, for `with step(0)` was before it. On ranks without that it begins at 0. If that was a "
    "baseline, before the first step of training, call steps(…, start=0)."
)

_AROUND: ContextVar[_Counted | None] = ContextVar("otel_ml_steps_around", default=None)


def _innermost() -> _Counted | None:
    """Return the loop in whose body this context is, or None."""
    loop = _AROUND.get()
    while loop is not None and not loop.is_in_body:
        loop = loop.outer
    return loop


class _AsyncLoop(Generic[T]):
    """An async loop that knows when it is left: its generator is told by the event loop only later."""

    def __init__(self, generate: Callable[[_Counted], AsyncGenerator[T, None]], loop: _Counted) -> None:
        self._loop = loop
        self._generator = generate(loop)

    def __aiter__(self) -> _AsyncLoop[T]:
        return self

    def __anext__(self) -> Awaitable[T]:
        return self._generator.__anext__()

    async def aclose(self) -> None:
        """End the loop now."""
        await self._generator.aclose()

    def __del__(self) -> None:
        # Left by `break`. Its generator is closed at a later `await` only, and what follows the loop is not in its
        # body.
        self._loop.is_in_body = False


class _Counted:
    """The steps of one loop: which is next, and what is measured in it.

    Attributes:
        outer: the loop in whose body this one began.
        is_in_body: whether the program is doing one of its steps.
    """

    def __init__(self, axis: str, start: int | None, number: int | None, scope: Scope | None) -> None:
        self.outer = _innermost()
        self.is_in_body = False
        _AROUND.set(self)
        self._axis = axis
        self._scope = scope
        self._steps = scope_steps() if scope is None else scope.steps
        entered = self._steps.axis(axis)
        in_stage = self._steps.staged and self._steps.stage.get() is not None
        self._is_staged = in_stage and not entered.is_entered
        following = entered.following()
        # What counts from further on says where it is; from below, as a second epoch does, it only counts.
        self._index = max(following, number or 0) if start is None else start
        if start is None and number == entered.latest != entered.counted:
            self._index = entered.latest  # the step that was logged at, or set, is the one that the loop begins with
        if start is None and number != self._index == following and not in_stage:
            self._say_what_it_follows(entered)
        # Something was logged at step 0, and the loop's first step is 0, too.
        if self._index == entered.latest == 0 and not entered.explicit:
            self._steps.keep_baseline_apart(entered)
        self._unasked = UnexpectedNumbers(following) if start is None and number is None else None
        self._whole: Timing | None = None
        self._waits_since = self._generation = 0

    def _say_what_it_follows(self, entered: Axis) -> None:
        """Say where it begins if loops of a stage, or a block that may be a baseline, have moved it."""
        if self._index and not entered.is_entered:
            reporter.say("loop-follows", _AFTER_A_STAGE.format(index=self._index), "steps after those of a stage")
        elif entered.is_only_block_0:
            reporter.say("loop-follows", _AFTER_BLOCK_0, "steps after a block on step 0")

    def is_around(self, axis: str, steps: Steps) -> bool:
        """Whether the program is in a step of it, on this axis of this run; not as a child that was forked there."""
        return self.is_in_body and (self._axis, self._generation) == (axis, steps.generation)

    def wait(self) -> None:
        """The next item is being fetched: what the loader records belongs to the step it is for."""
        self._waits_since = perf_counter_ns()
        self._steps.fetch(self._axis, self._index, self)

    def begin(self, item: object) -> None:
        """It is there: its step begins."""
        if self._unasked is not None and not self._unasked.look(item):
            self._unasked = None
        # Noted at each step: a fork in the body gives the child another one, by which it is not in this loop.
        self._generation = self._steps.generation
        self._steps.set(self._axis, self._index)
        axis = self._steps.axis(self._axis)
        axis.fetched = None
        axis.counted = self._index
        if self._is_staged:
            axis.note_stage()
        # In a `with step()` block that step is current, for the loop's timers as for all else.
        own = axis.current if self._steps.blocks.get() is None else None
        if self._scope is None:
            self._measure(own)
        else:
            with InScope(self._scope):
                self._measure(own)
        self.is_in_body = True

    def _measure(self, own: Step | None) -> None:
        # `step` first: the span of `data`, which began at the same moment, is inside of it.
        self._whole = self._begun("step", own)
        _stop(self._begun("data", own))

    def end(self) -> None:
        """The loop's body is done with it."""
        self.is_in_body = False
        _stop(self._whole)
        self._index += 1

    def _begun(self, name: str, own: Step | None) -> Timing | None:
        """Return a timer of the loop's own step; of an inner loop on another axis that is not what is current."""
        timing = _begun(name, self._waits_since)
        if timing is not None and own is not None:
            timing.step = timing.step if timing.step.axis is own.axis else own
        return timing

    def leave(self) -> None:
        """The loop is over, or left, in another context perhaps."""
        # A generator that is closed later, perhaps in another context, must not undo what has begun there since.
        if _AROUND.get() is self:
            _AROUND.set(self.outer)
        self._steps.leave_loop(self._axis, self)


def _begun(name: str, begin_ns: int) -> Timing | None:
    definition = timer_definition(name)
    if definition is None or definition.level > NOW.level:
        return None
    timing = timing_of(definition).__enter__()
    # The wait for the item, during which the step had not begun yet, counts in both timers.
    timing.begin_ns = begin_ns
    return timing


def _stop(timing: Timing | None) -> None:
    if timing is not None:
        timing.__exit__(None, None, None)


@public
@publish("iterable", "start")
@answered
def steps(
    iterable: Iterable[T] | AsyncIterable[T],
    start: int | None = None,
    *,
    axis: str = DEFAULT_AXIS,
) -> StepLoop[T]:
    """Iterate over `iterable`, each item in a step of its own; with `async for` where it is async.

    Sets the step before the loop's body and ends it after; records `time/data` (waiting for the item)
    and `time/step` (that and the body). What the loader records while it is waited for belongs to the step that it
    loads for. The steps of a second loop follow those of the first. A loop inside of another one on the same axis
    counts nothing: it is in the step of that one; so does one in a stage, which is in the step of training.

    What counts by one from further on than the last step, such as `range(60, 70)`, `enumerate(loader, 60)`,
    `itertools.count(60)`, a list of consecutive numbers, or any of these under tqdm, says itself which step it is.

    Args:
        iterable: the data loader; sync or async.
        start: the first step, where training is continued; by default the number at which `iterable` begins to count,
            or the one after the last on `axis`; a `log(step=0)` alone, a baseline, is none: the first step is 0, too.
        axis: the axis to count on.
    """
    if iterable is MISSING:
        reporter.wrong("bad-step", "steps(): expected what to iterate over, got nothing. Call steps(loader).")
        iterable = ()
    first = None if start is None else step_of(start)
    if start is not None and first is None:
        reporter.wrong("bad-step", bad_step(start, "steps()"))
    if not isinstance(axis, str) or not axis:
        reporter.wrong("bad-step", bad_axis(axis, "steps()"))
        axis = DEFAULT_AXIS
    return StepLoop(iterable, first, axis)
