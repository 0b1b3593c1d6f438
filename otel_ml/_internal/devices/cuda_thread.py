"""What a thread of otel_ml sets before it asks a CUDA device anything.

* Its calls must not break a graph that training captures meanwhile. By default CUDA forbids such calls as
  `cudaEventQuery` to every thread while one captures, and one of them makes the capture invalid. A thread can say that
  captures of others are not its business.
* Its device is the one it asks: a thread begins on device 0, and to work from there makes a context on it, hundreds of
  megabytes that belong to another rank.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["CAPTURING", "be_on", "captures_left_alone"]

CAPTURING = "a CUDA graph is being captured; record outside of the captured region"
"""Why nothing is launched here: it would be done at each replay, not now."""

_THREAD_LOCAL = 1
"""`CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: only what this thread itself captures restricts it."""

_CUDA = (("libcuda.so.1", "cuThreadExchangeStreamCaptureMode"), ("nvcuda.dll", "cuThreadExchangeStreamCaptureMode"))
_HIP = (("libamdhip64.so", "hipThreadExchangeStreamCaptureMode"),)

_here = threading.local()


def be_on(index: int) -> None:
    """Make this thread one that may ask the device `index` at any time. It is a thread of ours: nothing is restored."""
    cuda = sys.modules["torch"].cuda
    # Once for each thread: CUDA keeps the mode until it is exchanged again.
    if not hasattr(_here, "mode"):
        _here.mode = _exchanged(_THREAD_LOCAL)
    if cuda.current_device() != index:
        cuda.set_device(index)


@contextmanager
def captures_left_alone() -> Iterator[None]:
    """Have CUDA take no call of this thread in the block for a part of another one's capture."""
    before = _exchanged(_THREAD_LOCAL)
    try:
        yield
    finally:
        _exchanged(before)


def _exchanged(mode: int) -> int:
    """Set the mode of this thread, and return the one before; where the driver cannot, all is as it was."""
    import ctypes  # where there is such a device: other workers never load it

    is_hip = getattr(sys.modules["torch"].version, "hip", None) is not None
    for library, function in _HIP if is_hip else _CUDA:
        with suppress(OSError, AttributeError):
            exchanged = ctypes.c_int(mode)
            getattr(ctypes.CDLL(library), function)(ctypes.byref(exchanged))
            return exchanged.value
    return mode
