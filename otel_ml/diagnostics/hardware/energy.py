"""Energy of this process' GPUs per step and run, by the devices' own counters; training does not wait for a reading."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Literal, NamedTuple

from otel_ml._internal.device_tensor import Deferred
from otel_ml._internal.events.event_calls import log_summary
from otel_ml._internal.record.append import append
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.definition import DEFINITIONS, Series
from otel_ml._internal.steps.axes import current_step
from otel_ml.diagnostics.current_run import current_run
from otel_ml.diagnostics.hardware.amd import AmdDevice
from otel_ml.diagnostics.hardware.energy_readings import Ledger
from otel_ml.diagnostics.hardware.gpu import Gpus, of_this_process, open_gpus
from otel_ml.diagnostics.hardware.nvml import NvmlDevice
from otel_ml.quantities import seconds
from otel_ml.warn_once import reporter
from otel_ml.wire.reduction import Reduction

__all__ = ["Energy"]

OPENING_TIMEOUT = 5.0
"""Seconds that `start()` waits for the driver; what is used before it answers is not counted."""

ANSWER_TIMEOUT = 5.0
"""Seconds that a step waits for the counters: a driver that hangs must not keep all rows of the job open."""

_JOULES_PER_KWH = 3.6e6
_SUMMED = Reduction(("sum", "mean"), within="sum")
_MEAN = Reduction(("mean", "sum"))


class Energy:
    """Measures from `lap()` to `lap()`: `hw.energy.step` in joules and `hw.power.step` in watts, at the current step.

    Each rank measures the GPUs it may use (`CUDA_VISIBLE_DEVICES`); the first name is the sum over ranks, `…/mean` the
    mean of a rank. Where two ranks share a GPU, each counts it. A lap asks a thread to read the counters: the step's
    row waits for the answer, the caller does not.

    Args:
        grams_per_kwh: carbon intensity of the electricity; with it, `hw.carbon.total` (grams) is in the summary.

    Examples:
        ```python
        with hardware.Energy() as energy:
            for batch in otel_ml.steps(loader):
                train(batch)
                energy.lap()
                with energy.paused():
                    save_checkpoint()
        print(energy.total)
        ```
    """

    def __init__(self, *, grams_per_kwh: float | None = None) -> None:
        self._grams_per_kwh = grams_per_kwh
        self._begin()

    def _begin(self) -> None:
        self._marks: SimpleQueue[_Mark] = SimpleQueue()
        self._ledger = Ledger()
        self._is_paused = False  # as of the newest mark, which may not be read yet
        self._is_open = threading.Event()
        self._devices: list[NvmlDevice | AmdDevice] = []
        self._thread = threading.Thread(target=self._loop, name="otel_ml_energy", daemon=True)

    def start(self) -> Energy:
        """Begin to count, anew after `stop()`; the first reading is waited for. While it counts, nothing."""
        # A thread runs once; one that has ended is replaced, and one that was never started has no ident.
        if self._thread.ident is not None and not self._thread.is_alive():
            self._begin()
        if self._thread.ident is None:
            self._thread.start()
        self._is_open.wait(OPENING_TIMEOUT)
        return self

    def lap(self) -> None:
        """Record what was used since the lap before, at the current step; paused time and energy are left out."""
        lap = _Lap(self._thread)
        now_ns = time.time_ns()
        # Taken now: by the time the counters are read the program may be in a later step.
        step = current_step()
        self._marks.put(_Mark("lap", time.monotonic(), lap))
        # Behind the mark: the lap ends whether it is recorded or not.
        if NOW.off:
            return
        for name, unit, reduction, value in (
            ("hw.energy.step", "J", _SUMMED, _Used(lap, lambda: lap.joules)),
            ("hw.power.step", "W", _MEAN, _Used(lap, lambda: lap.watts)),
        ):
            series: Series | None = DEFINITIONS.series(name, reduction=reduction, unit=unit)
            if series is not None:
                append([series, step, value, now_ns])

    def pause(self) -> None:
        """Count nothing until `resume()`."""
        self._is_paused = True
        self._marks.put(_Mark("pause", time.monotonic()))

    def resume(self) -> None:
        """Count again."""
        self._is_paused = False
        self._marks.put(_Mark("resume", time.monotonic()))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing inside the block; a pause around it goes on after it."""
        was_paused = self._is_paused
        self.pause()
        try:
            yield
        finally:
            if not was_paused:
                self.resume()

    @property
    def total(self) -> float | None:
        """Joules counted until the newest lap, pause or end; None where no GPU counts energy."""
        return self._ledger.total

    def stop(self, timeout: float = 2.0) -> None:
        """Count what was used since the last lap, and write the total into the run's summary."""
        if self._thread.ident is None:  # never started
            return
        self._marks.put(_Mark("end", time.monotonic()))
        # The total is written by the caller: where the driver hangs, what was counted until then is.
        self._thread.join(timeout)
        total, run = self.total, current_run()
        if total is None or run is None:
            return
        values = {f"hw.energy.total/rank_{run.rank}": total}
        if self._grams_per_kwh is not None:
            values[f"hw.carbon.total/rank_{run.rank}"] = total / _JOULES_PER_KWH * self._grams_per_kwh
        log_summary(values)

    def __enter__(self) -> Energy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _loop(self) -> None:
        gpus = self._opened()
        now = time.monotonic()
        # The first reading: it says from where on the counter grows.
        self._ledger.advance(now, now, self._read())
        # Only from here on: what the counters had before is not ours.
        self._ledger.is_counting = True
        self._is_open.set()
        while True:
            marks = [self._marks.get()]
            # One reading serves all moments that wait for it.
            marks += [self._marks.get() for _ in range(self._marks.qsize())]
            joules = self._read()
            now = time.monotonic()
            for mark in marks:
                # The end is when the counters were read: what was used until then counts, too.
                self._ledger.advance(now if mark.kind == "end" else mark.time, now, joules)
                if mark.kind == "lap" and mark.lap is not None:
                    mark.lap.end(*self._ledger.lap())
                elif mark.kind == "end":
                    if gpus is not None:
                        gpus.close()
                    return
                else:
                    self._ledger.is_counting = mark.kind == "resume"

    def _opened(self) -> Gpus | None:
        try:
            gpus = open_gpus()
            self._devices = of_this_process(gpus)
        except Exception as error:  # noqa: BLE001 - UnavailableError, or whatever a driver's library raises
            reporter.say("no-hardware", f"No energy is measured: {error}. Everything else goes on.")
            return None
        return gpus

    def _read(self) -> float | None:
        """Return the sum of the counters; None where one does not answer: a part must not be taken for all."""
        total = 0.0
        for device in self._devices:
            try:
                joules = device.energy()
            except Exception as error:  # noqa: BLE001 - whatever a driver that went away answers
                reporter.say("hardware-lost", f"No energy is measured from now on: {error}. Everything else goes on.")
                return None
            if joules is None:
                return None
            total += joules
        return total if self._devices else None


class _Mark(NamedTuple):
    """A moment on the caller's thread."""

    kind: Literal["lap", "pause", "resume", "end"]
    time: float
    lap: _Lap | None = None


class _Lap:
    """What one lap used, once it is known."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._given_up_at = time.monotonic() + ANSWER_TIMEOUT
        self.is_over = False
        self.joules: float | None = None
        self.seconds = 0.0

    def end(self, joules: float | None, seconds: float) -> None:
        """Take the answer."""
        self.joules, self.seconds, self.is_over = joules, seconds, True

    @property
    def watts(self) -> float | None:
        """The mean power."""
        return None if self.joules is None or self.seconds <= 0 else self.joules / self.seconds

    @property
    def is_known(self) -> bool:
        """Whether the answer is there, or is waited for no longer."""
        # After a fork no thread of the parent's is alive in the child: nobody would ever answer.
        if self.is_over or not self._thread.is_alive():
            return True
        if time.monotonic() < self._given_up_at:
            return False
        reporter.say(
            "hardware-lost",
            f"The driver of a GPU has not answered for {seconds(ANSWER_TIMEOUT)}: steps have no energy until it does. "
            "Everything else goes on.",
        )
        return True


class _Used(Deferred):
    __slots__ = ("_lap", "_value")

    def __init__(self, lap: _Lap, value: Callable[[], float | None]) -> None:
        self._lap = lap
        self._value = value

    def ready(self) -> bool:
        return self._lap.is_known

    def read(self) -> list[float]:
        value = self._value()
        return [] if value is None else [value]
