"""`operation("actor_train/train_step")`: time and memory of a piece of work that may load and offload its states."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from otel_ml._internal.axes import NOW
from otel_ml._internal.timed_calls import timed_calls
from otel_ml._internal.timing import timed
from otel_ml.diagnostics.device_memory import device_memory, reset_peaks
from otel_ml.diagnostics.hardware.process_memory import process_memory
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.once import guard

__all__ = ["Measurement", "Operation", "operation"]

F = TypeVar("F", bound=Callable[..., Any])


class Measurement:
    """What one operation took, under the names it is published by.

    Attributes:
        values: seconds (`time/…`) and bytes or shares (`memory/…`), complete after `end()`.
    """

    def __init__(self, infix: str) -> None:
        self.infix = str(infix)
        self.values: dict[str, float] = {}
        self._names = _names(self.infix)
        self._began = 0.0
        self._phases = {"onload": 0.0, "offload": 0.0}
        self._offloads = False
        self._peaks: dict[int, tuple[int, int]] = {}

    def begin(self) -> None:
        """The operation begins, its states offloaded."""
        self.values.clear()
        self._phases = dict.fromkeys(self._phases, 0.0)
        self._offloads = False
        self._peaks.clear()
        self._began = perf_counter()
        self._safely(self._measure_start)

    def end(self) -> None:
        """The operation is over."""
        self._safely(self._measure_end)
        total = perf_counter() - self._began
        for phase, seconds in self._phases.items():
            if seconds:
                self.values[self._names.phases[phase]] = seconds
        self.values[self._names.total] = total
        self.values[self._names.execute] = total - sum(self._phases.values())

    def onload(self) -> _Phase:
        """The block brings states onto the device; memory is looked at after it."""
        return _Phase(self, "onload")

    def offload(self) -> _Phase:
        """The block takes states off the device; memory is looked at before it, and at the end of the operation."""
        return _Phase(self, "offload")

    def before(self, phase: str) -> None:
        """A phase begins now."""
        if phase == "offload":
            if self._began:
                self._safely(self._measure_before_offload)
            self._offloads = True

    def after(self, phase: str, seconds: float, *, failed: bool) -> None:
        """A phase has taken so long."""
        self._phases[phase] += seconds
        if phase == "onload" and self._began and not failed:
            self._safely(self._measure_after_onload)

    def timer(self, phase: str) -> AbstractContextManager[object]:
        """Return what records a phase beside the operation: nothing, where the caller takes the numbers."""
        return contextlib.nullcontext()

    def _measure_after_onload(self) -> None:
        self._snapshot("start/onload")

    def _measure_before_offload(self) -> None:
        self._snapshot("end/onload", with_shares=True)

    def _measure_start(self) -> None:
        # An operation inside another one begins its own peaks: what the outer has seen so far is kept for it.
        seen = device_memory()
        if seen:
            for outer in _OPEN:
                outer.see(seen)
            reset_peaks()
        _OPEN.append(self)
        if seen:
            self._snapshot("start/offload")
        self._process("start")

    def _measure_end(self) -> None:
        if self in _OPEN:
            _OPEN.remove(self)
        self._snapshot("end/offload" if self._offloads else "end/onload", with_shares=not self._offloads)
        self._process("end")

    def see(self, memory: dict[int, Any]) -> None:
        """Keep the peaks until now: they are about to begin anew."""
        for device, found in memory.items():
            allocated, reserved = self._peaks.get(device, (0, 0))
            self._peaks[device] = max(allocated, found.max_allocated), max(reserved, found.max_reserved)

    def _snapshot(self, point: str, *, with_shares: bool = False) -> None:
        memory = device_memory()
        if not memory:
            return
        self.see(memory)
        for device, found in memory.items():
            max_allocated, max_reserved = self._peaks[device]
            values: dict[str, float] = {
                "allocated": found.allocated,
                "reserved": found.reserved,
                "max_allocated": max_allocated,
                "max_reserved": max_reserved,
            }
            if with_shares and found.total:
                shares = {"max_allocated": max_allocated, "max_reserved": max_reserved}
                values |= {f"{name}_frac": value / found.total for name, value in shares.items()}
            for name, value in values.items():
                self.values[f"memory/{self.infix}/{point}/{name}/{device}"] = float(value)

    def _process(self, point: str) -> None:
        memory = process_memory()
        if memory is not None:
            rss, vms = self._names.process[point]
            self.values[rss] = float(memory.rss)
            self.values[vms] = float(memory.vms)

    @staticmethod
    def _safely(measure: Callable[[], None]) -> None:
        try:
            measure()
        except Exception as error:  # noqa: BLE001 - a device in error must not end training here; training will say it
            guard.say("no-hardware", f"No memory of an operation is measured: {error}. Everything else goes on.")


class _Names(NamedTuple):
    """Under which names an operation is published; made once, since many are."""

    total: str
    execute: str
    phases: Mapping[str, str]
    process: Mapping[str, tuple[str, str]]
    timers: Mapping[str, str]
    measures: _OperationMeasures


class _OperationMeasures(Measures):
    """By name, made when first asked for: which devices there are, is known by then."""

    __slots__ = ()

    def __missing__(self, name: str) -> Measure:
        if name.startswith("time/"):
            measure = Measure(name, "s", ("max",), "Slowest rank's time outside of phases.", "sum")
        elif "_frac/" in name:
            measure = Measure(name, "1", ("max",), "Part of the device's memory, of the fullest rank.")
        else:
            measure = Measure(name, "By", ("max",), "Memory of the fullest rank.")
        self[name] = measure
        return measure


@lru_cache(maxsize=1024)
def _names(infix: str) -> _Names:
    return _Names(
        f"time/{infix}/total",
        f"time/{infix}/execute",
        {phase: f"time/{infix}/{phase}" for phase in ("onload", "offload")},
        {point: (f"memory/cpu/{infix}/{point}/rss", f"memory/cpu/{infix}/{point}/vms") for point in ("start", "end")},
        {phase: f"{infix}/{phase}" for phase in ("total", "onload", "offload")},
        _OperationMeasures(),
    )


class _Phase:
    """The `with` block in which an operation brings states onto the device, or takes them off.

    A generator in its place, and one for each layer of it, took more time where training has emptied the caches.
    """

    __slots__ = ("_began", "_measurement", "_name", "_timer")

    def __init__(self, measurement: Measurement, name: str) -> None:
        self._measurement = measurement
        self._name = name

    def __enter__(self) -> None:
        self._measurement.before(self._name)
        self._timer = self._measurement.timer(self._name)
        self._timer.__enter__()
        self._began = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = perf_counter() - self._began
        self._timer.__exit__(kind, error, trace)
        self._measurement.after(self._name, seconds, failed=kind is not None)


_OPEN: list[Measurement] = []
"""Operations of this process that have begun; `append` and `remove` are atomic."""


class Operation(Measurement):
    """One run of an operation, recorded at its end; made by `operation()`."""

    def __init__(self, infix: str, level: int = 1) -> None:
        super().__init__(infix)
        self._level = level

    def __enter__(self) -> Operation:
        self._began = 0.0
        self._timer = self.timer("total")
        self._timer.__enter__()
        if self._level <= NOW.level:  # which is -1 while nothing is recorded
            self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_measured = self._began > 0
        if is_measured:
            self.end()
        self._timer.__exit__(kind, error, trace)
        if is_measured:
            self._publish()

    def __call__(self, function: F) -> F:
        """Make every call of `function` an operation of its own: sync, async, generator or method."""
        return timed_calls(function, lambda: Operation(self.infix, self._level))

    def timer(self, phase: str) -> AbstractContextManager[object]:
        """Return the timer of a phase, or of the whole."""
        return timed(self._names.timers[phase], level=self._level)

    def _publish(self) -> None:
        names = self._names
        timed_too = names.total, *names.phases.values()
        names.measures.record({name: value for name, value in self.values.items() if name not in timed_too})


def operation(name: str, *, level: int = 1) -> Operation:
    """Measure a `with` block, or every call of a function, as an operation.

    Records `time/<name>/total`, `…/execute` and, where the block uses them, `…/onload` and `…/offload`; of each CUDA
    device in use `memory/<name>/<point>/<number>/<device>` in bytes, and the process' `memory/cpu/<name>/<start or
    end>/<rss or vms>`. The slowest rank's time and the largest memory of all ranks count. Nothing waits for a device.

    Args:
        name: cluster and work, such as `"actor_train/train_step"`.
        level: operations above `OTEL_ML_TIMER_LEVEL` measure nothing.

    Examples:
        ```python
        with otel_ml.operation("actor_train/train_step") as op:
            with op.onload():
                strategy.load_states()
            train()
            with op.offload():
                strategy.offload_states()
        ```
    """
    if not isinstance(name, str) or not name:
        guard.wrong("bad-name", f"operation(): expected a name such as 'actor_train/train_step', got {name!r:.80}.")
        name = "operation"
    if not isinstance(level, int):
        guard.wrong(
            "bad-timer",
            f"operation({name!r:.80}): expected a level that is a whole number, got {level!r:.40}. It is 1.",
        )
        level = 1
    return Operation(name, level)
