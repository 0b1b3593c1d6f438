"""Values that are still being computed on a device: the caller never waits for them, the background thread reads them.

torch is never imported here; it is used where the user's program has imported it.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from otel_ml._internal.guard import guard

__all__ = [
    "Deferred",
    "DeviceArray",
    "DeviceElapsed",
    "DeviceTensor",
    "Weighted",
    "copied_tensor",
    "cuda_event",
    "deferred_tensor",
    "is_on_device",
    "reading_from",
]


def is_on_device(value: Any) -> bool:
    """Whether to read an array would wait for a device; of one of JAX its devices are asked, not its value."""
    devices = getattr(value, "devices", None)
    try:
        if callable(devices):
            return any(device.platform != "cpu" for device in devices())
        return getattr(getattr(value, "device", None), "type", "cpu") != "cpu"
    except Exception:  # noqa: BLE001 (one that JAX is tracing; a class of the program's)
        return False


class Deferred(ABC):
    """A value that will be there later."""

    __slots__ = ()

    @abstractmethod
    def ready(self) -> bool:
        """Whether `read()` would return at once."""

    @abstractmethod
    def read(self) -> list[Any]:
        """Return the values, each one record."""

    @property
    def size(self) -> int:
        """How many records are lost with it."""
        return 1

    def records(self, series: Any, step: Any, time_ns: int) -> Iterable[Any]:
        """Return what stands in the buffer for it, once it is ready."""
        values = self.read()
        return (series, step, values, time_ns) if values else ()


class DeviceTensor(Deferred):
    """A copy of a tensor, made on the stream of its caller, with the event that says when it is done."""

    __slots__ = ("_copy", "_event")

    def __init__(self, copy: Any, event: Any) -> None:
        self._copy = copy
        self._event = event

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def read(self) -> list[float]:
        if self._copy.device.type != "cuda":
            return _floats(self._copy)
        with reading_from(self._copy.device):
            return _floats(self._copy)


class DeviceArray(Deferred):
    """A JAX array: immutable, so it is kept as it is and asked whether it has been computed."""

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    def ready(self) -> bool:
        return bool(self._array.is_ready())

    def read(self) -> list[float]:
        return [float(item) for item in self._array.reshape(-1).tolist()]


class DeviceElapsed(Deferred):
    """Seconds between two events on a device's stream."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Any, end: Any) -> None:
        self._begin = begin
        self._end = end

    def ready(self) -> bool:
        return bool(self._end.query())

    def read(self) -> list[float]:
        return [self._begin.elapsed_time(self._end) / 1000]


class Weighted(Deferred):
    """Values with weights of which at least one side is deferred."""

    __slots__ = ("_values", "_weights")

    def __init__(self, values: float | list[float] | Deferred, weights: float | list[float] | Deferred) -> None:
        self._values = values
        self._weights = weights

    def ready(self) -> bool:
        return all(side.ready() for side in (self._values, self._weights) if isinstance(side, Deferred))

    def read(self) -> list[tuple[float, float]]:
        values, weights = _now(self._values), _now(self._weights)
        if len(weights) == 1:
            weights = weights * len(values)
        pairs = [pair for pair in zip(values, weights, strict=False) if pair[1] >= 0]
        if len(pairs) < len(values):
            guard.dropped["bad_weight"] += len(values) - len(pairs)
        return pairs


def _now(side: float | list[float] | Deferred) -> list[float]:
    if isinstance(side, Deferred):
        return side.read()
    return side if isinstance(side, list) else [side]


def _floats(tensor: Any) -> list[float]:
    return [float(item) for item in tensor.reshape(-1).tolist()]


_side_streams: dict[object, Any] = {}


def reading_from(device: Any) -> AbstractContextManager[Any]:
    """Read from a CUDA device on a stream of our own: on the default one a copy would queue behind all of training's.

    What is read must have been computed: `Event.query()` or `Event.synchronize()` said so.
    """
    cuda = sys.modules["torch"].cuda
    stream = _side_streams.get(device)
    if stream is None:
        stream = _side_streams[device] = cuda.Stream(device=device)
    found: AbstractContextManager[Any] = cuda.stream(stream)
    return found


def deferred_tensor(tensor: Any) -> Deferred:
    """Copy a device tensor on the current stream and mark the end of the copy; nothing waits.

    Raises:
        ValueError: where the stream is being captured into a graph: the copy would become part of it.
    """
    copy, event = copied_tensor(tensor)
    return DeviceTensor(copy, event)


def copied_tensor(tensor: Any) -> tuple[Any, Any]:
    """Return a copy made on the current stream, and the event of its end, None where the device has no events.

    Raises:
        ValueError: where the stream is being captured into a graph: the copy would become part of it.
    """
    torch = sys.modules["torch"]
    kind = tensor.device.type
    if kind == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise ValueError("is recorded while a CUDA graph is captured; record it outside of the captured region")
        event = torch.cuda.Event()
        copy = tensor.detach().clone()
        event.record(torch.cuda.current_stream(tensor.device))
        return copy, event
    event_type = getattr(getattr(torch, kind, None), "Event", None)
    copy = tensor.detach().clone()
    if event_type is None:
        return copy, None
    event = event_type()
    event.record()
    return copy, event


def cuda_event() -> Any:
    """Record an event on CUDA's current stream, or return None where there is no CUDA, or it does not work.

    A process that has not initialised CUDA has nothing on it to measure, and a forked child cannot: neither is
    made to (`is_initialized`, unlike `is_available`, is false in both, and asks no driver).
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    except RuntimeError as error:  # after a device-side assert, every call fails: training will say so itself
        guard.say("cuda-timers", f"Timers with device='cuda' measure on the CPU: {error}.")
        return None
    return event
