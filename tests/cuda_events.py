"""Events of a CUDA device that is not there: each stream has its own clock, and a test says how far it has come.

It stands in for `torch` at the boundary that timers use, and fails where somebody would wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from otel_ml._internal.devices.cuda_calls import CUDA
from otel_ml._internal.devices.device_timers import DEVICE_TIMERS

__all__ = ["CudaEvents", "cuda_events"]

TOTAL = 80 * 2**30
"""Bytes of a device."""

Stream = tuple[int, int]
"""Device and handle."""


@dataclass
class CudaEvents:
    """What the devices have been told, and what they have done of it.

    Attributes:
        device: the current one.
        stream: handle of each device's current stream; 0 is the default one.
        now_s: when all that a stream has been told will be done, on the devices' common clock.
        done_s: until when a stream has come.
        calls: how often events were made, recorded, queried and read.
        held, peak: bytes of each device.
        error: what every call raises, once the device has failed.
    """

    device: int = 0
    stream: Counter[int] = field(default_factory=Counter)
    now_s: dict[Stream, float] = field(default_factory=dict)
    done_s: dict[Stream, float] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    held: Counter[int] = field(default_factory=Counter)
    peak: Counter[int] = field(default_factory=Counter)
    is_capturing: bool = False
    is_initialized: bool = True
    error: str | None = None

    @property
    def current(self) -> Stream:
        return self.device, self.stream[self.device]

    def work(self, seconds: float) -> None:
        """Launch something that takes the device so long."""
        self.now_s[self.current] = self.now_s.get(self.current, 0.0) + seconds

    def allocate(self, size: int) -> None:
        """Have torch's allocator hold so many bytes more of the current device."""
        self.held[self.device] += size
        self.peak[self.device] = max(self.peak[self.device], self.held[self.device])

    def memory(self, device: int) -> dict[str, dict[str, dict[str, int]]]:
        numbers = {"all": {"current": self.held[device], "peak": self.peak[device]}}
        return {"allocated_bytes": numbers, "reserved_bytes": numbers}

    def reset_peak(self, device: int) -> None:
        self.peak[device] = self.held[device]

    def catch_up(self, until_s: float = float("inf"), stream: Stream | None = None) -> None:
        """Let a stream, or all of them, come so far."""
        for one in [stream] if stream else list(self.now_s):
            self.done_s[one] = until_s

    @contextmanager
    def on(self, device: int = 0, stream: int = 0) -> Iterator[None]:
        """Make a stream of a device current, as `with torch.cuda.stream(…)` does."""
        before = self.device, self.stream[device]
        self.device, self.stream[device] = device, stream
        yield
        self.device, self.stream[device] = before

    def check(self) -> None:
        if self.error is not None:
            raise RuntimeError(self.error)


class Event:
    def __init__(self, cuda: CudaEvents) -> None:
        self.cuda = cuda
        self.where: Stream | None = None
        cuda.calls["made"] += 1

    def record(self, stream: Stream | None = None) -> None:
        self.cuda.check()
        where = stream or self.cuda.current
        if self.where is not None and self.where[0] != where[0]:
            raise RuntimeError(f"Event device index {self.where[0]} does not match recording stream's.")
        self.where, self.at_s = where, self.cuda.now_s.setdefault(where, 0.0)
        self.cuda.calls["recorded"] += 1

    def query(self) -> bool:
        self.cuda.check()
        self.cuda.calls["queried"] += 1
        return self._is_done()

    def _is_done(self) -> bool:
        assert self.where is not None
        return self.at_s <= self.cuda.done_s.get(self.where, -1.0)

    def elapsed_time(self, end: Event) -> float:
        self.cuda.check()
        if not (self._is_done() and end._is_done()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        self.cuda.calls["read"] += 1
        return (end.at_s - self.at_s) * 1000

    def synchronize(self) -> None:
        raise AssertionError("Somebody would wait for the device.")


@pytest.fixture
def cuda_events(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaEvents]:
    """Let the program have initialized CUDA on devices that do only what the test says."""
    cuda = CudaEvents()

    def asked(answer: Any) -> Any:
        cuda.check()
        return answer

    native = {
        "_cuda_getDevice": lambda: asked(cuda.device),
        "_cuda_getCurrentRawStream": lambda device: asked(cuda.stream[device]),
        "_cuda_isCurrentStreamCapturing": lambda: asked(cuda.is_capturing),
        "_cuda_hasPrimaryContext": lambda device: device == 0,
        "_cuda_memoryStats": lambda device: asked(cuda.memory(device)),
        "_cuda_resetPeakMemoryStats": cuda.reset_peak,
    }
    for name, stand_in in native.items():
        monkeypatch.setattr(torch._C, name, stand_in)
    monkeypatch.setattr(torch, "Event", lambda device, *, enable_timing: Event(cuda))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: cuda.is_initialized)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: (device, cuda.stream[device]))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("Somebody would wait for the device."))
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: setattr(cuda, "device", device))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=TOTAL))
    _forget()
    yield cuda
    _forget()


def _forget() -> None:
    CUDA.forget()
    DEVICE_TIMERS.forget()
