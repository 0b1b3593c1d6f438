"""`Tracer` and `trace`: how long the parts of an operation take, on the CPU's clock or on the device's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter_ns
from types import TracebackType
from typing import Any, TypeVar

from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.compat.forge.device_marks import DEVICE_MARKS, device_mark
from otel_ml.compat.forge.memory import MemorySpan
from otel_ml.compat.forge.metric import Metric, Reduce
from otel_ml.compat.forge.switches import are_metrics_off, are_perf_metrics_off, timer_wanted
from otel_ml.once import say

__all__ = ["Tracer", "trace"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class _Mark:
    """A moment, on both clocks; `event` is None where the CPU's counts."""

    ns: int
    event: Any = None

    def seconds_since(self, before: _Mark) -> float:
        if self.event is not None and before.event is not None:
            return float(before.event.elapsed_time(self.event)) / 1e3
        return (self.ns - before.ns) / 1e9


class Tracer:
    """Measures steps between `start()` and `stop()`; may be used again.

    Records `<prefix>/<step>/duration_avg_s` and `duration_max_s` for each step, and
    `<prefix>/total_duration_avg_s` and `total_duration_max_s`.

    Args:
        prefix: of all names.
        track_memory: also record `<prefix>/memory_delta_end_start_avg_gb` and `memory_peak_max_gb`, in GiB.
        timer: `"cpu"`, or `"gpu"` for what the current CUDA stream takes, by events; nothing waits for the device.
            METRIC_TIMER_USES_GPU says otherwise for all tracers.
    """

    def __init__(self, prefix: str, track_memory: bool = False, timer: str = "cpu") -> None:
        self.prefix = prefix
        self._memory = MemorySpan(prefix) if track_memory else None
        self._timer = timer
        self._marks: list[tuple[str, _Mark]] = []
        self._place = COLLECTOR.place()

    def start(self) -> None:
        """Begin; nothing is measured where DISABLE_PERF_METRICS or FORGE_DISABLE_METRICS is set."""
        if are_perf_metrics_off() or are_metrics_off():
            return
        if self._marks:
            self._say_wrong("started twice; the first measurement is dropped", "Call stop() before")
        elif self._memory is not None:
            self._memory.begin()
        self._marks = [("", self._mark())]
        self._place = COLLECTOR.place()

    def step(self, step_name: str) -> None:
        """What ran since the start, or since the step before, was step `step_name`."""
        if self._marks:
            self._marks.append((step_name, self._mark()))
        elif not (are_perf_metrics_off() or are_metrics_off()):
            self._say_wrong(f"at step {step_name!r}, and not started", "Call start() first")

    def stop(self) -> None:
        """End, and record; on the device's clock once the device has come here, at the step in which it began."""
        marks, self._marks = self._marks, []
        if not marks:
            if not (are_perf_metrics_off() or are_metrics_off()):
                self._say_wrong("stopped, and not started", "Call start() first")
            return
        if self._memory is not None:
            self._memory.end()
        last = self._mark(like=marks[0][1])
        if last.event is None:
            self._record(marks, last, COLLECTOR.push)
        else:
            push = functools.partial(COLLECTOR.push_at, self._place)
            DEVICE_MARKS.when_done(last.event, lambda: self._record(marks, last, push))

    def _mark(self, like: _Mark | None = None) -> _Mark:
        is_gpu = timer_wanted(self._timer) == "gpu" if like is None else like.event is not None
        event = device_mark() if is_gpu else None
        if is_gpu and event is None:
            say(
                "compat-forge",
                f"Tracer {self.prefix!r}: there is no CUDA device, so it measures on the CPU. "
                "Leave timer='gpu' out on machines without one.",
            )
        return _Mark(perf_counter_ns(), event)

    def _record(self, marks: list[tuple[str, _Mark]], last: _Mark, push: Callable[[Metric], None]) -> None:
        times = [(f"{name}/duration", after.seconds_since(before)) for (_, before), (name, after) in pairwise(marks)]
        for name, seconds in (*times, ("total_duration", last.seconds_since(marks[0][1]))):
            push(Metric(f"{self.prefix}/{name}_avg_s", seconds, Reduce.MEAN))
            push(Metric(f"{self.prefix}/{name}_max_s", seconds, Reduce.MAX))

    def _say_wrong(self, what: str, do: str) -> None:
        say("compat-forge", f"Tracer {self.prefix!r} was {what}. {do}.")


class trace:  # noqa: N801 (torchforge's name)
    """`with trace("forward") as tracer:`, or every call of a function, sync or async.

    The arguments are those of `Tracer`.
    """

    def __init__(self, prefix: str, track_memory: bool = False, timer: str = "cpu") -> None:
        self._new = functools.partial(Tracer, prefix, track_memory, timer)
        self._entered: list[Tracer] = []

    def __enter__(self) -> Tracer:
        tracer = self._new()
        tracer.start()
        self._entered.append(tracer)
        return tracer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        tracer = self._entered.pop()
        if tracer._marks:  # noqa: SLF001 (one idea in two classes): may have been stopped inside
            tracer.stop()

    def __call__(self, function: F) -> F:
        """Trace every call of `function`."""
        measured: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def measured(*arguments: Any, **keywords: Any) -> Any:
                with self._fresh():
                    return await function(*arguments, **keywords)

        else:

            @functools.wraps(function)
            def measured(*arguments: Any, **keywords: Any) -> Any:
                with self._fresh():
                    return function(*arguments, **keywords)

        return measured  # type: ignore[no-any-return]

    def _fresh(self) -> trace:
        """Calls may overlap: each has a tracer of its own."""
        return trace(*self._new.args)
