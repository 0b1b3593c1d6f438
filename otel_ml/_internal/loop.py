"""`steps(loader)`: a training loop that needs no call to set or end its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Generic, TypeVar

from otel_ml._internal.axes import NOW, STEPS
from otel_ml._internal.guard import guard
from otel_ml._internal.step import bad_axis, bad_step, is_step
from otel_ml._internal.timing import Timing, timing_of, watch_named
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["StepLoop", "steps"]

T = TypeVar("T")


class StepLoop(Generic[T]):
    """What `steps()` returns; as long as what it iterates over."""

    def __init__(self, iterable: Iterable[T], start: int | None, axis: str) -> None:
        self._iterable = iterable
        self._start = start
        self._axis = axis

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type] # without a length it raises what the iterable raises

    def __iter__(self) -> Iterator[T]:
        if NOW.off:
            yield from self._iterable
            return
        axis = STEPS.axis(self._axis)
        index = axis.latest + 1 if self._start is None else self._start
        iterator = iter(self._iterable)
        try:
            while True:
                begin_ns = perf_counter_ns()
                try:
                    item = next(iterator)
                except StopIteration:
                    return
                STEPS.set(self._axis, index)
                whole = _begun("step", begin_ns)
                _stop(_begun("data", begin_ns))
                try:
                    yield item
                finally:
                    _stop(whole)
                index += 1
        finally:
            STEPS.end(self._axis)


def _begun(name: str, begin_ns: int) -> Timing | None:
    watch = watch_named(name)
    if watch is None or watch.level > NOW.level:
        return None
    timing = timing_of(watch).__enter__()
    timing.begin_ns = begin_ns
    return timing


def _stop(timing: Timing | None) -> None:
    if timing is not None:
        timing.__exit__(None, None, None)


def steps(iterable: Iterable[T], *, start: int | None = None, axis: str = DEFAULT_AXIS) -> StepLoop[T]:
    """Iterate over `iterable`, each item in a step of its own.

    Sets the step before the loop's body and ends it after; records `time/data` (waiting for the item)
    and `time/step` (that and the body). The steps of a second loop follow those of the first.

    Args:
        iterable: the data loader.
        start: the first step, where training is continued; by default the one after the last on `axis`.
        axis: the axis to count on.
    """
    if start is not None and not is_step(start):
        guard.wrong(bad_step(start, "steps()"))
        start = None
    if not isinstance(axis, str) or not axis:
        guard.wrong(bad_axis(axis, "steps()"))
        axis = DEFAULT_AXIS
    return StepLoop(iterable, None if start is None else int(start), axis)
