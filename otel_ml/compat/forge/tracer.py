"""`Tracer` and `trace`: how long the parts of an operation take, on the CPU's clock or on the device's."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import TracebackType
from typing import Any, TypeVar

from otel_ml._internal.devices.device_timers import DEVICE_TIMERS, DeviceElapsed
from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.compat.forge.environment_variables import are_metrics_off, are_perf_metrics_off, timer_wanted
from otel_ml.compat.forge.metric import Metric, Reduce
from otel_ml.compat.forge.recording import record_metric
from otel_ml.diagnostics.device_memory import current_memory, reset_peak
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import say

__all__ = ["Tracer", "trace"]

F = TypeVar("F", bound=Callable[..., Any])


class _Stretch:
    """From here to `end()`, on the device's clock where that is asked for and possible, else on the CPU's."""

    __slots__ = ("_began_ns", "_elapsed")

    def __init__(self, *, is_gpu: bool) -> None:
        # The device's first: recording its event costs the host some time, which is not part of what the CPU's clock
        # measures.
        self._elapsed = DEVICE_TIMERS.begin() if is_gpu else None
        self._began_ns = perf_counter_ns()

    @property
    def is_on_device(self) -> bool:
        return self._elapsed is not None

    def end(self) -> float | DeviceElapsed:
        """Return the seconds, or what will be them once the device has come here."""
        if self._elapsed is not None and DEVICE_TIMERS.end(self._elapsed):
            return self._elapsed
        return (perf_counter_ns() - self._began_ns) / 1e9


def _check_timer(timer: str) -> None:
    if timer not in {"cpu", "gpu"}:
        raise ConfigError(f'timer must be "cpu" or "gpu", got {timer!r}.')


class Tracer:
    """Measures steps between `start()` and `stop()`; may be used again.

    Out of that order its methods raise `ConfigError`, a ValueError, as in torchforge.

    Records `<prefix>/<step>/duration_avg_s` and `duration_max_s` for each step, and
    `<prefix>/total_duration_avg_s` and `total_duration_max_s`.

    Args:
        prefix: of all names.
        track_memory: also record `<prefix>/memory_delta_end_start_avg_gb` and `memory_peak_max_gb`, in GiB.
        timer: `"cpu"`, or `"gpu"` for what the current CUDA stream takes, by events; nothing waits for the device.
            METRIC_TIMER_USES_GPU says otherwise for all tracers.

    Raises:
        ConfigError: a ValueError; `timer` is neither.
    """

    def __init__(self, prefix: str, track_memory: bool = False, timer: str = "cpu") -> None:
        _check_timer(timer)
        self.prefix = prefix
        self._memory = MemorySpan(prefix) if track_memory else None
        self._timer = timer
        self._whole: _Stretch | None = None
        self._place = COLLECTOR.place()

    def start(self) -> None:
        """Begin; nothing is measured where DISABLE_PERF_METRICS or FORGE_DISABLE_METRICS is set."""
        if are_perf_metrics_off() or are_metrics_off():
            return
        if self._whole is not None:
            raise self._wrong("started twice", "Call stop() before")
        if self._memory is not None:
            self._memory.begin()
        self._is_gpu = timer_wanted(self._timer) == "gpu"
        self._place = COLLECTOR.place()
        self._parts: list[tuple[str, float | DeviceElapsed]] = []
        self._whole = _Stretch(is_gpu=self._is_gpu)
        if self._is_gpu and not self._whole.is_on_device:
            say(
                "compat-forge",
                f"Tracer {self.prefix!r}: the program uses no CUDA device, so it measures on the CPU. "
                "Leave timer='gpu' out on machines without one.",
            )
        self._part = _Stretch(is_gpu=self._is_gpu)

    def step(self, step_name: str) -> None:
        """What ran since the start, or since the step before, was step `step_name`."""
        if self._whole is not None:
            self._parts.append((step_name, self._part.end()))
            self._part = _Stretch(is_gpu=self._is_gpu)
        # With metrics off start() did nothing, and a step without it is not a mistake.
        elif not (are_perf_metrics_off() or are_metrics_off()):
            raise self._wrong(f"at step {step_name!r}, and not started", "Call start() first")

    def stop(self) -> None:
        """End, and record; what the device took, at the step in which it began."""
        whole, self._whole = self._whole, None
        if whole is None:
            if not (are_perf_metrics_off() or are_metrics_off()):
                raise self._wrong("stopped, and not started", "Call start() first")
            return
        # Before memory is read, which takes time of its own.
        total = whole.end()
        if self._memory is not None:
            self._memory.end()
        times = [(f"{name}/duration", seconds) for name, seconds in self._parts]
        for name, seconds in (*times, ("total_duration", total)):
            # Two names of one value: a metric has one reduction.
            self._push(Metric(f"{self.prefix}/{name}_avg_s", seconds, Reduce.MEAN))
            self._push(Metric(f"{self.prefix}/{name}_max_s", seconds, Reduce.MAX))

    def _push(self, metric: Metric) -> None:
        if isinstance(metric.value, DeviceElapsed):
            # The value is known once the device has come there, maybe in a later step.
            COLLECTOR.push_at(self._place, metric)
        else:
            COLLECTOR.push(metric)

    def _wrong(self, what: str, do: str) -> ConfigError:
        return ConfigError(f"Tracer {self.prefix!r} was {what}. {do}.", slug="compat-forge")


class trace:  # noqa: N801 (torchforge's name)
    """`with trace("forward") as tracer:`, or every call of a function, sync or async.

    The arguments, and what they raise, are those of `Tracer`.
    """

    def __init__(self, prefix: str, track_memory: bool = False, timer: str = "cpu") -> None:
        _check_timer(timer)
        self._new = functools.partial(Tracer, prefix, track_memory, timer)
        # A stack: one `trace` may be entered again inside itself, as by a function that calls itself.
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
        if tracer._whole is not None:  # noqa: SLF001 (one idea in two classes): may have been stopped inside
            tracer.stop()

    def __call__(self, function: F) -> F:
        """Trace every call of `function`."""
        measured: Any
        # Of a coroutine function the call returns at once: it is measured until it has been awaited.
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


GIB = 1024**3

_TRACKED_BY: list[str] = []
"""Prefix of the tracer that tracks: the peak is one for the process, so only the outermost can."""


class MemorySpan:
    """Device memory of a traced block: what it left behind, and its peak."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before: int | None = None

    @never_raises
    def begin(self) -> None:
        """Note what is allocated, and start the peak anew; nothing inside another tracked block."""
        if not _is_cuda_available():
            say(
                "compat-forge",
                f"Tracer {self._prefix!r}: there is no CUDA device, so no memory is recorded. "
                "Leave track_memory out on machines without one.",
            )
        elif _TRACKED_BY:
            say(
                "compat-forge",
                f"Nested memory tracking detected in {self._prefix}: {_TRACKED_BY[0]!r} around it tracks already. "
                "The peak is one for the process: only the outer one records memory.",
            )
        else:
            held = current_memory()
            self._before = 0 if held is None else held.allocated  # the block may be the first to use the device
            _TRACKED_BY.append(self._prefix)
            reset_peak()

    @never_raises
    def end(self) -> None:
        """Record the difference and the peak, in GiB."""
        before, self._before = self._before, None
        if before is None:
            return
        _TRACKED_BY.clear()
        held = current_memory()
        if held is not None:
            record_metric(f"{self._prefix}/memory_delta_end_start_avg_gb", (held.allocated - before) / GIB)
            record_metric(f"{self._prefix}/memory_peak_max_gb", held.max_allocated / GIB, Reduce.MAX)


def _is_cuda_available() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
