"""What a test does with its device: the same on a GPU, where `make gpu` runs it, and on the CPU, for `make test`.

On the CPU nothing runs behind the caller's back, so a test shows less there; it shows that the test itself works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

__all__ = ["DEVICES", "Cpu", "Cuda", "Device"]


class Device(Protocol):
    """A kind of device.

    Attributes:
        kind: as torch names it.
        all: each device of the kind that there is.
        backend: of torch.distributed.
        precision: the share by which a time may differ from one taken around it; between a CPU's, anything may happen.
        many: elements of a tensor that is large here: of a GPU more than 2³¹.
    """

    kind: str
    backend: str
    precision: float
    many: int

    @property
    def all(self) -> Sequence[str]: ...

    def busy(self, seconds: float) -> None:
        """Keep the current stream busy, at least about as long."""

    def other_stream(self) -> AbstractContextManager[Any]:
        """Make another stream the current one."""

    def strict(self, mode: str) -> AbstractContextManager[Any]:
        """Let torch raise ("error") or warn ("warn") where a call waits for the device, on any thread."""

    def synchronize(self) -> None: ...

    def is_behind(self) -> bool:
        """Whether the current stream has yet to do what it was given; a CPU is held to be."""

    def moment(self) -> Callable[[Callable[[], None]], Callable[[], float]]:
        """Return what measures a call by events of its own: answers what reads the seconds, after `synchronize()`."""

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture `work` in a graph, and return what replays it."""

    def held(self) -> int:
        """Return the bytes of the device's memory that tensors hold."""

    def peak(self) -> int:
        """Return the most bytes that they held at once, since `forget_peak()`."""

    def forget_peak(self) -> None: ...


class Cuda:
    """The GPUs of NVIDIA, or what torch calls so of AMD's."""

    kind = "cuda"
    backend = "nccl"
    precision = 0.05
    many = 2**31 + 17

    @property
    def all(self) -> Sequence[str]:
        import torch

        return [f"cuda:{index}" for index in range(torch.cuda.device_count())]

    def busy(self, seconds: float) -> None:
        import torch

        torch.cuda._sleep(int(seconds * 1.5e9))  # cycles

    @contextmanager
    def other_stream(self) -> Iterator[None]:
        import torch

        with torch.cuda.stream(torch.cuda.Stream()):
            yield

    @contextmanager
    def strict(self, mode: str) -> Iterator[None]:
        import torch

        torch.cuda.set_sync_debug_mode(mode)
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def synchronize(self) -> None:
        import torch

        torch.cuda.synchronize()

    def is_behind(self) -> bool:
        import torch

        return not torch.cuda.current_stream().query()

    def moment(self) -> Callable[[Callable[[], None]], Callable[[], float]]:
        import torch

        def measure(work: Callable[[], None]) -> Callable[[], float]:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            work()
            end.record()
            return lambda: begin.elapsed_time(end) / 1e3

        return measure

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        import torch

        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def held(self) -> int:
        import torch

        return int(torch.cuda.memory_allocated())

    def peak(self) -> int:
        import torch

        return int(torch.cuda.max_memory_allocated())

    def forget_peak(self) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats()


class Cpu:
    """The host: everything has happened when a call returns."""

    kind = "cpu"
    backend = "gloo"
    precision = 1.0
    many = 2**10 + 17
    all: Sequence[str] = ("cpu",)

    def busy(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            pass

    def other_stream(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def strict(self, mode: str) -> AbstractContextManager[Any]:
        del mode
        return nullcontext()

    def synchronize(self) -> None:
        """Nothing is to be waited for."""

    def is_behind(self) -> bool:
        return True

    def moment(self) -> Callable[[Callable[[], None]], Callable[[], float]]:
        def measure(work: Callable[[], None]) -> Callable[[], float]:
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            return lambda: seconds

        return measure

    def captured(self, work: Callable[[], None]) -> Callable[[], None]:
        return work

    def held(self) -> int:
        return 0

    def peak(self) -> int:
        return 0

    def forget_peak(self) -> None:
        """There is none."""


DEVICES: dict[str, Device] = {device.kind: device for device in (Cuda(), Cpu())}
