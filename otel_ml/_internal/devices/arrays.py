"""Copies of arrays and tensors that the caller may change or free at once; read later, in the background."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from otel_ml._internal.device_tensor import copied_tensor
from otel_ml._internal.devices.cuda_thread import be_on

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ArrayLike", "NotYetError", "copied"]

ArrayLike = Any
"""numpy arrays, tensors, nested lists: what `numpy.asarray` takes, and torch tensors on any device."""

PART = 16 * 2**20
"""Bytes of pinned memory that a tensor goes through, one part after the other."""


class NotYetError(Exception):
    """An array is still on its way from a device: ask again later."""


def copied(value: ArrayLike) -> Callable[[], np.ndarray[Any, Any]]:
    """Copy `value` now, and return how to get it as a numpy array.

    A tensor on a device is cloned on the caller's stream. What gets it never waits: it raises `NotYetError` while the
    device has not come so far.
    """
    if hasattr(value, "detach") and hasattr(value, "device"):
        return _copied_tensor(value)
    import numpy as np

    array = np.array(value)
    return lambda: array


def _copied_tensor(tensor: Any) -> Callable[[], np.ndarray[Any, Any]]:
    if tensor.device.type == "cpu":
        # On the host the copy is there when the call returns: nothing has to be waited for.
        clone = tensor.detach().clone()
        return lambda: _as_numpy(clone)
    if tensor.device.type == "cuda":
        return _FromCuda(tensor).read
    copy, copy_is_done = copied_tensor(tensor)

    def read() -> np.ndarray[Any, Any]:
        if copy_is_done is not None and not copy_is_done.query():
            raise NotYetError
        return _as_numpy(copy)

    return read


class _FromCuda:
    """A clone on a CUDA device, on its way to the host: part by part, on a stream of our own.

    On the stream of the caller each copy would queue behind all of training's work, and take part of its memory bound.
    """

    def __init__(self, tensor: Any) -> None:
        self._torch = torch = sys.modules["torch"]
        if torch.cuda.is_current_stream_capturing():
            raise ValueError("a tensor is logged while a CUDA graph is captured. Log it outside of the captured region")
        with torch.no_grad():
            self._clone = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._shape = self._clone.shape
        self._done = torch.cuda.Event()
        self._done.record(torch.cuda.current_stream(tensor.device))
        self._begin = self._end = 0
        self._host: Any = None
        self._pinned: Any = None
        # Nothing yet: the first `read()` copies nothing to the host, and begins the first part.
        self._part: Any = torch.empty(0, device="cpu")

    def read(self) -> np.ndarray[Any, Any]:
        """Return the array.

        Raises:
            NotYetError: a part of it is still on its way.
        """
        be_on(self._clone.device.index)
        if not self._done.query():
            raise NotYetError
        if self._host is None:
            self._host = self._torch.empty(self._clone.numel(), dtype=self._clone.dtype, device="cpu")
        self._host[self._begin : self._end] = self._part
        # One part a look: a tensor takes as many looks as it has parts.
        if self._end < self._clone.numel():
            self._begin_part()
            raise NotYetError
        return _as_numpy(self._host.view(self._shape))

    def _begin_part(self) -> None:
        """Have the next part copied."""
        torch, flat = self._torch, self._clone.view(-1)
        self._begin, size = self._end, PART // flat.element_size()
        self._end = min(flat.numel(), self._begin + size)
        # Of the first part, which is as large as any that follows.
        if not self._begin:
            self._pinned = torch.empty(self._end, dtype=flat.dtype, device="cpu", pin_memory=True)
        # All parts go through the same pinned memory: `read()` has taken the one before by now.
        self._part = self._pinned[: self._end - self._begin]
        stream = _stream(torch, flat.device)
        # Another stream than the clone's may read it: the event has said that the clone, or the part before, is done.
        with torch.cuda.stream(stream), torch.no_grad():
            self._part.copy_(flat[self._begin : self._end], non_blocking=True)
        self._done.record(stream)


_streams: dict[object, Any] = {}


def _stream(torch: Any, device: Any) -> Any:
    found = _streams.get(device)
    if found is None:
        found = _streams[device] = torch.cuda.Stream(device=device)
    return found


def _as_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if str(tensor.dtype) == "torch.bfloat16":  # numpy has no such type
        tensor = tensor.float()
    array: np.ndarray[Any, Any] = tensor.cpu().numpy()
    return array
