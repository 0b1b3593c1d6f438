"""What is asked of `torch.cuda`, without the frames of Python that torch has around it.

With cold caches, between two steps of training, each frame costs 1 to 2 µs, and `torch.cuda.current_stream()` alone
has ten. torch is never imported here, and a process that has not initialized CUDA is not made to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["CUDA", "CudaCalls"]

Numbers = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Kind → pool (`all`) → `current`, `peak` and others."""


class CudaCalls(NamedTuple):
    """Of a process that has initialized CUDA.

    Attributes:
        devices: that this process sees.
        device: the current one.
        has_context: whether this process has anything on a device.
        stream: the handle of the current stream of a device.
        current_stream: the same as torch's object.
        is_capturing: whether the current stream of the current device is captured into a graph.
        event: makes one that measures time.
        memory: what torch's allocator holds of a device, not flattened: that takes most of the time of
            `torch.cuda.memory_stats()` and of all that is made of it.
        reset_peaks: lets the peaks of a device begin anew.
        total: bytes of a device.
    """

    devices: range
    device: Callable[[], int]
    has_context: Callable[[int], bool]
    stream: Callable[[int], int]
    current_stream: Callable[[int], Any]
    is_capturing: Callable[[], bool]
    event: Callable[[], Any]
    memory: Callable[[int], Numbers]
    reset_peaks: Callable[[int], object]
    total: Callable[[int], int]


class Cuda:
    """Finds CUDA once.

    Attributes:
        calls: what was found, or None.
    """

    def __init__(self) -> None:
        self.calls: CudaCalls | None = None

    def find(self) -> CudaCalls | None:
        """Return how to ask, once the program has initialized CUDA.

        A process that has not has nothing on it to measure, and a forked child cannot: `is_initialized`, unlike
        `is_available`, is false in both, and asks no driver.
        """
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            self.calls = _calls_of(torch)
        return self.calls

    def forget(self) -> None:
        """Look for it anew: a forked child cannot use its parent's."""
        self.calls = None


def _calls_of(torch: Any) -> CudaCalls:
    cuda = torch.cuda

    def own(name: str, public: Callable[..., Any]) -> Callable[..., Any]:
        # A torch that lacks the private function has the public one, with the frames around it.
        found: Callable[..., Any] = getattr(torch._C, name, public)  # noqa: SLF001 (torch's compiler calls them, too)
        return found

    return CudaCalls(
        devices=range(cuda.device_count()),
        device=own("_cuda_getDevice", cuda.current_device),
        has_context=own("_cuda_hasPrimaryContext", lambda _: True),
        stream=own("_cuda_getCurrentRawStream", lambda device: cuda.current_stream(device).cuda_stream),
        current_stream=cuda.current_stream,
        is_capturing=own("_cuda_isCurrentStreamCapturing", cuda.is_current_stream_capturing),
        event=_event_of(torch),
        memory=own("_cuda_memoryStats", cuda.memory_stats_as_nested_dict),
        reset_peaks=own("_cuda_resetPeakMemoryStats", cuda.reset_peak_memory_stats),
        total=lru_cache(lambda device: int(cuda.get_device_properties(device).total_memory)),
    )


def _event_of(torch: Any) -> Callable[[], Any]:
    """Return what makes an event.

    One of `torch.Event` finds the current stream in C++, one of `torch.cuda.Event` has Python make an object of it. It
    has `elapsed_time()` at least since there is `torch.accelerator`.
    """
    if hasattr(torch, "accelerator"):
        return lambda: torch.Event("cuda", enable_timing=True)
    return lambda: torch.cuda.Event(enable_timing=True)


CUDA = Cuda()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CUDA.forget)
