"""`operation("actor_train/train_step")`: time and memory of a piece of work that may load and offload its states."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from time import perf_counter
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from otel_ml._internal.error_reporting import answered
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.safe_repr import exact_text, safe_repr
from otel_ml._internal.signature import publish
from otel_ml._internal.timers.timed_calls import timed_calls
from otel_ml._internal.timers.timing import timed
from otel_ml.diagnostics.device_memory import DeviceMemory, device_memory, reset_peaks
from otel_ml.diagnostics.hardware.process_memory import process_memory
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.warn_once import reporter

__all__ = ["Measurement", "Operation", "operation"]

F = TypeVar("F", bound=Callable[..., Any])


class Measurement:
    """What one operation took, under the names it is published by.

    Attributes:
        values: seconds (`time/…`) and bytes or shares (`memory/…`), complete after `end()`.
    """

    def __init__(self, infix: str) -> None:
        self.infix = infix
        self.values: dict[str, float] = {}
        self._names = _names(infix)
        self._began = 0.0

    def begin(self) -> None:
        """The operation begins, its states offloaded."""
        self.values.clear()
        self._phases: dict[str, float] = {}
        self._offloads = False
        self._peaks: dict[int, tuple[int, int]] = {}
        self._snapshots: list[_Snapshot] = []
        self._began = perf_counter()
        try:
            self._begin_peaks()
        except Exception as error:  # noqa: BLE001
            _say_unmeasured(error)
        self._process = process_memory()

    def end(self) -> None:
        """The operation is over."""
        # It is not there where the device was in error at the beginning.
        if self in _OPEN:
            _OPEN.remove(self)
        process = process_memory()
        # Without an `offload()` block the states stay where they were, and the end is the only look at them.
        self._look("end/offload" if self._offloads else "end/onload", with_shares=not self._offloads)
        for snapshot in self._snapshots:  # here, and not where they are taken: with cold caches only the first is dear
            self.values.update(snapshot.values(self.infix))
        for names, found in zip(self._names.process, (self._process, process), strict=True):
            if found is not None:
                self.values.update(zip(names, map(float, found), strict=True))
        total = perf_counter() - self._began
        for phase, seconds in self._phases.items():
            self.values[self._names.phases[phase]] = seconds
        self.values[self._names.total] = total
        self.values[self._names.execute] = total - sum(self._phases.values())

    @answered
    def onload(self) -> _Phase:
        """The block brings states onto the device; memory is looked at after it."""
        return _Phase(self, "onload")

    @answered
    def offload(self) -> _Phase:
        """The block takes states off the device; memory is looked at before it, and at the end of the operation."""
        return _Phase(self, "offload")

    def before(self, phase: str) -> None:
        """A phase begins now."""
        # Above the level nothing has begun: `_began` is 0.
        if phase == "offload" and self._began:
            self._offloads = True
            self._look("end/onload", with_shares=True)

    def after(self, phase: str, seconds: float, *, failed: bool) -> None:
        """A phase has taken so long."""
        if self._began:
            self._phases[phase] = self._phases.get(phase, 0.0) + seconds
            if phase == "onload" and not failed:
                self._look("start/onload")

    def timer(self, phase: str) -> AbstractContextManager[object]:
        """Return what records a phase beside the operation: nothing, where the caller takes the numbers."""
        return contextlib.nullcontext()

    def _begin_peaks(self) -> None:
        memory = device_memory()
        for outer in _OPEN:  # what those have seen so far is kept for them
            outer.see(memory)
        # Behind `outer.see`: the device has one peak, for all operations that are open.
        reset_peaks(memory)
        _OPEN.append(self)
        for device, found in memory.items():
            self._peaks[device] = found.allocated, found.reserved
        self._snapshots.append(_Snapshot("start/offload", memory, self._peaks.copy()))

    def _look(self, point: str, *, with_shares: bool = False) -> None:
        try:
            memory = device_memory()
        except Exception as error:  # noqa: BLE001
            _say_unmeasured(error)
            return
        self.see(memory)
        # A copy: the peaks grow on.
        self._snapshots.append(_Snapshot(point, memory, self._peaks.copy(), with_shares))

    def see(self, memory: Mapping[int, DeviceMemory]) -> None:
        """Keep the peaks until now: they are about to begin anew."""
        for device, found in memory.items():
            allocated, reserved = self._peaks.get(device, (0, 0))
            self._peaks[device] = max(allocated, found.max_allocated), max(reserved, found.max_reserved)


def _say_unmeasured(error: Exception) -> None:
    # A device in error must not end training here; training will say it.
    reporter.say("no-hardware", f"No memory of an operation is measured: {error}. Everything else goes on.")


class _Snapshot(NamedTuple):
    """What the devices held at a point, and their peaks in this operation until then."""

    point: str
    memory: Mapping[int, DeviceMemory]
    peaks: Mapping[int, tuple[int, int]]
    with_shares: bool = False

    def values(self, infix: str) -> dict[str, float]:
        """Return it under the names it is published by."""
        values: dict[str, float] = {}
        for device, found in self.memory.items():
            allocated, reserved = self.peaks[device]
            numbers: tuple[float, ...] = found.allocated, found.reserved, allocated, reserved
            if self.with_shares and found.total:
                numbers += allocated / found.total, reserved / found.total
            values.update(zip(_memory_names(infix, self.point, device), map(float, numbers), strict=False))
        return values


class _Names(NamedTuple):
    """Under which names an operation is published; made once, since many are."""

    total: str
    execute: str
    phases: Mapping[str, str]
    process: tuple[tuple[str, str], tuple[str, str]]
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
    process = f"memory/cpu/{infix}"
    return _Names(
        f"time/{infix}/total",
        f"time/{infix}/execute",
        {phase: f"time/{infix}/{phase}" for phase in ("onload", "offload")},
        ((f"{process}/start/rss", f"{process}/start/vms"), (f"{process}/end/rss", f"{process}/end/vms")),
        {phase: f"{infix}/{phase}" for phase in ("total", "onload", "offload")},
        _OperationMeasures(),
    )


@lru_cache(maxsize=4096)
def _memory_names(infix: str, point: str, device: int) -> tuple[str, ...]:
    """Return under which names a snapshot is published, the two shares last."""
    numbers = "allocated", "reserved", "max_allocated", "max_reserved", "max_allocated_frac", "max_reserved_frac"
    return tuple(f"memory/{infix}/{point}/{number}/{device}" for number in numbers)


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
        # Again for each use: `begin()` is left out where the level is off now.
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
        # Behind end(): what the timer measures is never less than the sum of the phases.
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
        # Which the timers have recorded.
        timed_too = names.total, *names.phases.values()
        names.measures.record({name: value for name, value in self.values.items() if name not in timed_too})


@publish("name")
@answered
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
        reporter.wrong(
            "bad-name", f"operation(): expected a name such as 'actor_train/train_step', got {safe_repr(name)}."
        )
        name = "operation"
    if not isinstance(level, int):
        reporter.wrong(
            "bad-timer",
            f"operation({name!r:.80}): expected a level that is a whole number, got {safe_repr(level, 40)}. It is 1.",
        )
        level = 1
    return Operation(exact_text(name), level)
