"""Streams, events and captured graphs: work that is done in order, at once or when a test says so."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from tests.fake_cuda.active_card import active_card

__all__ = ["FakeEvent", "FakeGraph", "FakeStream"]


class FakeStream:
    """Work that is done in order; at once, unless it is held.

    Attributes:
        launches: kernels and copies that it was given, or a graph that it is captured into.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **_: object) -> None:
        card = active_card()
        self.device = card.device_of(device)
        self.priority = priority
        self.stream_id = card.next_stream_id() if stream_id is None else stream_id
        self.device_index, self.device_type = self.device.index, 1
        self.cuda_stream = self.stream_id
        self.captured: FakeGraph | None = None
        self._waiting: deque[Callable[[], object]] = deque()
        self.launches = 0
        self._is_held = self._is_busy = False
        self._before = threading.local()
        card.streams.append(self)

    def hold(self) -> None:
        """Do nothing from now on: the device is behind, or hangs."""
        self._is_held = True

    def release(self) -> None:
        """Do what was launched, and all that follows at once."""
        self._is_held = False
        active_card().run()

    def run(self, operations: int) -> None:
        """Do the next of what was launched, and go on being held."""
        with active_card().lock:
            for _ in range(min(operations, len(self._waiting))):
                self._do_next()
            active_card().run()

    def queue(self, work: Callable[[], object]) -> None:
        with active_card().lock:
            if self.captured is not None:
                self.captured.work.append(work)
                return
            self._waiting.append(work)
            self.go_on()

    def go_on(self) -> bool:
        """Do what can be done; return whether something was."""
        before = len(self._waiting)
        while self._waiting and not self._is_held and self._do_next():
            pass
        return len(self._waiting) < before

    def _do_next(self) -> bool:
        if self._is_busy:  # with work in which the garbage collector has freed memory: that comes behind it
            return False
        self._is_busy = True
        try:
            if self._waiting[0]() is _NOT_YET:
                return False
            self._waiting.popleft()
            return True
        finally:
            self._is_busy = False

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def wait_event(self, event: FakeEvent) -> None:
        mark = event.mark
        self.queue(lambda: None if mark is None or mark.is_reached else _NOT_YET)

    def wait_stream(self, stream: FakeStream) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: FakeEvent | None = None) -> FakeEvent:
        event = FakeEvent() if event is None else event
        event.record(self)
        return event

    def query(self) -> bool:
        active_card().unsafe_while_captured("Stream.query()")
        active_card().fail_if_broken()
        if self.captured is not None:
            self.captured.broken_by = "Stream.query() of a stream that is captured"
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return self.is_idle

    def synchronize(self) -> None:
        active_card().wait("Stream.synchronize()")

    def __enter__(self) -> FakeStream:
        before = self._before.__dict__.setdefault("streams", [])  # of this thread, as the current stream is
        before.append(active_card().current(self.device.index))
        active_card().set_current(self)
        return self

    def __exit__(self, *_: object) -> None:
        active_card().set_current(self._before.streams.pop())


_NOT_YET = object()


class _Mark:
    """Where an event was recorded last."""

    def __init__(self) -> None:
        self.is_reached = False
        self.at_ms = 0.0


class FakeEvent:
    """Done when its stream has come to where it was recorded."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.enable_timing = enable_timing
        self.mark: _Mark | None = None
        self.device: torch.device | None = None
        active_card().count("events made")

    def record(self, stream: FakeStream | None = None) -> None:
        card = active_card()
        card.fail_if_broken()
        stream = card.stream if stream is None else stream
        if self.device is not None and self.device != stream.device:
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {stream.device}.")
        self.device = stream.device
        mark = self.mark = _Mark()
        card.count("events recorded")

        def reach() -> None:
            mark.is_reached, mark.at_ms = True, card.clock_ms

        stream.queue(reach)

    def query(self) -> bool:
        card = active_card()
        card.unsafe_while_captured("Event.query()")
        card.fail_if_broken()
        card.count("queries")
        return self.mark is None or self.mark.is_reached

    def wait(self, stream: FakeStream | None = None) -> None:
        (active_card().stream if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        active_card().wait("Event.synchronize()")

    def elapsed_time(self, end: FakeEvent) -> float:
        marks = (self.mark, end.mark)
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if any(mark is None or not mark.is_reached for mark in marks):
            raise RuntimeError("CUDA error: device not ready")
        assert self.mark is not None
        assert end.mark is not None
        return end.mark.at_ms - self.mark.at_ms


class FakeGraph:
    """What was captured; `replay()` launches all of it."""

    def __init__(self) -> None:
        self.work: list[Callable[[], object]] = []
        self.broken_by: str | None = None

    def replay(self) -> None:
        if self.broken_by is not None:
            raise RuntimeError(f"CUDA error: the capture was broken by {self.broken_by}")
        stream = active_card().stream
        active_card().count_launch(stream)
        for work in self.work:
            stream.queue(work)

    def reset(self) -> None:
        self.work.clear()
