"""`steps(loader)`: a training loop that needs no call to set or end its steps."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any, Generic, NoReturn, TypeVar

from otel_ml._internal.error_reporting import reporter, say_unused
from otel_ml._internal.run_scope import NOW, InScope, Scope
from otel_ml._internal.signature import public, public_type, publish
from otel_ml._internal.steps.axes import scope_steps
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
        if NOW.off:
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
                    loop.end()
        finally:
            loop.leave()

    async def __aiter__(self) -> AsyncIterator[T]:
        if NOW.off:
            async for item in self._iterable:
                yield item
            return
        loop = _Counted(self._axis, self._start, None, self._scope)
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


class _Counted:
    """The steps of one loop: which is next, and what is measured in it."""

    def __init__(self, axis: str, start: int | None, number: int | None, scope: Scope | None) -> None:
        self._axis = axis
        self._scope = scope
        self._steps = scope_steps() if scope is None else scope.steps
        following = self._steps.axis(axis).latest + 1
        # What counts from further on says where it is; from below, as a second epoch does, it only counts.
        self._index = max(following, number or 0) if start is None else start
        self._unasked = UnexpectedNumbers(following) if start is None and number is None else None
        self._whole: Timing | None = None
        self._waits_since = 0

    def wait(self) -> None:
        """The next item is being fetched."""
        self._waits_since = perf_counter_ns()

    def begin(self, item: object) -> None:
        """It is there: its step begins."""
        if self._unasked is not None and not self._unasked.look(item):
            self._unasked = None
        self._steps.set(self._axis, self._index)
        with nullcontext() if self._scope is None else InScope(self._scope):
            self._whole = _begun("step", self._waits_since)
            _stop(_begun("data", self._waits_since))

    def end(self) -> None:
        """The loop's body is done with it."""
        _stop(self._whole)
        self._index += 1

    def leave(self) -> None:
        """The loop is over, or left."""
        self._steps.end(self._axis)


def _begun(name: str, begin_ns: int) -> Timing | None:
    definition = timer_definition(name)
    if definition is None or definition.level > NOW.level:
        return None
    timing = timing_of(definition).__enter__()
    timing.begin_ns = begin_ns
    return timing


def _stop(timing: Timing | None) -> None:
    if timing is not None:
        timing.__exit__(None, None, None)


@public
@publish("iterable", "start")
def steps(
    iterable: Iterable[T] | AsyncIterable[T],
    start: int | None = None,
    *,
    axis: str = DEFAULT_AXIS,
    **unknown: NoReturn,
) -> StepLoop[T]:
    """Iterate over `iterable`, each item in a step of its own; with `async for` where it is async.

    Sets the step before the loop's body and ends it after; records `time/data` (waiting for the item)
    and `time/step` (that and the body). The steps of a second loop follow those of the first.

    What counts by one from further on than the last step, such as `range(60, 70)`, `enumerate(loader, 60)`,
    `itertools.count(60)`, a list of consecutive numbers, or any of these under tqdm, says itself which step it is.

    Args:
        iterable: the data loader; sync or async.
        start: the first step, where training is continued; by default the number at which `iterable` begins to count,
            or the one after the last on `axis`.
        axis: the axis to count on.
        unknown: not used: said, as any other mistake.
    """
    say_unused("steps", (), unknown)
    first = None if start is None else step_of(start)
    if start is not None and first is None:
        reporter.wrong("bad-step", bad_step(start, "steps()"))
    if not isinstance(axis, str) or not axis:
        reporter.wrong("bad-step", bad_axis(axis, "steps()"))
        axis = DEFAULT_AXIS
    return StepLoop(iterable, first, axis)
