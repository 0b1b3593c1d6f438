"""Timers on a CUDA device: pairs of events on its streams, taken from a pool, and asked about a stream at a time.

The caller's thread records two events and does nothing else: none is made once the pool has them, no object for the
current stream (as `torch.cuda.Event.record()` makes), no wait. The background thread asks each stream for its newest
event: events of a stream are done in order.
"""

from __future__ import annotations

import os
from threading import get_ident
from typing import Any

from otel_ml._internal.device_tensor import Deferred
from otel_ml._internal.devices.cuda_calls import CUDA
from otel_ml._internal.devices.cuda_thread import be_on
from otel_ml._internal.error_reporting import reporter

__all__ = ["DEVICE_TIMERS", "DeviceElapsed", "DeviceTimers"]


class DeviceElapsed(Deferred):
    """Seconds between two events of a device; made where the time begins.

    It has no `__init__`: `DeviceTimers.begin()` fills it in, which costs half of a call.

    Attributes:
        begin, end: the events; None once they are read.
        device: index of both.
        stream: the handle of the one it began on.
        is_alone: it is asked by itself: it ended on another stream than it began on, or too many wait.
        is_done: the device has passed both.
        seconds: as soon as they are read. It may be recorded under several names.
    """

    __slots__ = ("begin", "device", "end", "is_alone", "is_done", "seconds", "stream")

    begin: Any
    end: Any
    device: int
    stream: int
    is_alone: bool
    is_done: bool
    seconds: float | None

    def ready(self) -> bool:
        return self.is_done or (self.is_alone and self._is_passed())

    def _is_passed(self) -> bool:
        be_on(self.device)
        self.is_done = bool(self.end.query() and self.begin.query())
        return self.is_done

    def read(self) -> list[float]:
        if self.seconds is None:
            # Of two streams, the end may come first: nothing was between them.
            self.seconds = max(0.0, self.begin.elapsed_time(self.end) / 1000)
            DEVICE_TIMERS.take_back(self)
        return [self.seconds]


class DeviceTimers:
    """Owner of the events: those that nobody uses, and those that the device has not passed."""

    MOST_FREE = 4096
    """Events of a device that are kept: of 20 timers a step at 100 steps a second, read each second."""

    MOST_ENDED = 100_000
    """Times of a stream that wait for it; as many device values as are kept at all."""

    MOST_STREAMS = 1024
    """Streams, each as one thread sees it."""

    def __init__(self) -> None:
        self._out_of_use: list[object] = []
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._free: dict[int, list[Any]] = {}
        self._ended: dict[tuple[int, int, int], list[DeviceElapsed]] = {}

    def forget(self) -> None:
        """Have no events: a forked child can neither use nor free its parent's."""
        self._out_of_use += (self._free, self._ended)
        self._begin_anew()

    # One frame each, and nothing that could be left out: with cold caches a call costs 1 to 2 µs.

    def begin(self) -> DeviceElapsed | None:
        """Begin on CUDA's current stream; None where there is no CUDA, it is captured, or it does not work."""
        event = None
        try:
            cuda = CUDA.calls or CUDA.find()
            if cuda is None or (cuda.is_capturing() and _say_captured()):
                return None
            elapsed = DeviceElapsed()
            elapsed.device = device = cuda.device()
            elapsed.stream = cuda.stream(device)
            try:
                event = self._free[device].pop()
            except LookupError:  # asked beforehand, another thread might take the last one meanwhile
                event = cuda.event()
            elapsed.begin = event
            event.record()
        except Exception as error:  # noqa: BLE001 - after a device-side assert every call fails: training will say so
            self._fail(error, event)
            return None
        elapsed.is_alone = elapsed.is_done = False
        elapsed.seconds = None
        return elapsed

    def end(self, elapsed: DeviceElapsed) -> bool:
        """End on the current stream of the device it began on; False where that is no longer possible."""
        event = None
        try:
            cuda = CUDA.calls
            if cuda is None or (cuda.is_capturing() and _say_captured()):
                return False
            device = elapsed.device
            stream = cuda.stream(device)
            try:
                event = self._free[device].pop()
            except LookupError:
                event = cuda.event()
            elapsed.end = event
            # `record()` alone takes the current stream of the current device, which may be another device by now.
            if cuda.device() == device:
                event.record()
            else:
                event.record(cuda.current_stream(device))
        except Exception as error:  # noqa: BLE001 - as at its begin
            self._fail(error, event)
            return False
        ended = self._ended.get((get_ident(), device, stream))
        if ended is None:
            ended = self._new_queue(device, stream)
        if ended is None or stream != elapsed.stream or len(ended) >= self.MOST_ENDED:
            elapsed.is_alone = True
        else:
            ended.append(elapsed)
        return True

    def look(self) -> None:
        """Find out what the device has passed: one question a stream, and a few more where it has not passed all."""
        for (_, device, _), ended in list(self._ended.items()):
            if ended:
                # A copy, as the thread that records appends meanwhile: what it appends stands behind those that are
                # removed.
                passed = _passed(ended[:], device)
                for elapsed in ended[:passed]:
                    elapsed.is_done = True
                del ended[:passed]

    def take_back(self, elapsed: DeviceElapsed) -> None:
        """Use the events of a time that was read for others."""
        free = self._free.get(elapsed.device)
        if free is None:
            free = self._free.setdefault(elapsed.device, [])
        if len(free) < self.MOST_FREE:
            free += (elapsed.begin, elapsed.end)
        elapsed.begin = elapsed.end = None

    def _new_queue(self, device: int, stream: int) -> list[DeviceElapsed] | None:
        """Return where times of a stream wait, in its order: threads that share it know nothing of each other's."""
        if len(self._ended) >= self.MOST_STREAMS:
            return None
        return self._ended.setdefault((get_ident(), device, stream), [])

    def _fail(self, error: Exception, event: Any) -> None:
        if event is not None and any(self._free.values()):
            # Events of a device that was reset are no longer valid; to free them would say so once for each.
            self._out_of_use += (event, self._free)
            self._free = {}
        reporter.say("cuda-timers", f"Timers with device='cuda' measure on the CPU: {error}.")


def _passed(ended: list[DeviceElapsed], device: int) -> int:
    """Return how many of the times of a stream are over; the newest one is asked first, for then all of them are.

    A device that fails has passed all: reading each says what it says.
    """
    low, at, high = 0, len(ended) - 1, len(ended)
    try:
        be_on(device)
        # Those before `low` are over, those from `high` on are not.
        while low < high:
            if ended[at].end.query():
                low = at + 1
            else:
                high = at
            at = (low + high) // 2
    except Exception:  # noqa: BLE001 - whatever a device raises is reported when they are read
        return len(ended)
    return low


def _say_captured() -> bool:
    reporter.say(
        "cuda-timers",
        "A timer with device='cuda' inside of a CUDA graph that is captured measures on the CPU, and a replay is not "
        "measured at all. Put it around graph.replay().",
    )
    return True


DEVICE_TIMERS = DeviceTimers()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=DEVICE_TIMERS.forget)
