"""The cards of a process: their streams and memory, and what was asked of them."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.fake_cuda.dispatch import Dispatcher
from tests.fake_cuda.streams import FakeGraph, FakeStream
from tests.fake_cuda.tensors import GARBAGE, CudaTensor, Lease

__all__ = ["FakeCuda"]

_new_tensor = torch.tensor
"""The true one: `torch.tensor` itself is replaced."""


class FakeCuda:
    """The cards of this process, and what was asked of them.

    Attributes:
        counts: `launches` (kernels and copies), `operations` (all that went through torch's dispatcher, views too),
            `copies` (between host and device), `events made`, `events recorded`, `queries`, `pinned` (blocks).
        operations: their names, in order, with the stream; views too.
        waits: what waited for a device, or would have.
        clock_ms: of the device: events take it when their stream comes to them.
        allocated_on: bytes in use, by the stream that was current when they were allocated.
        pinned_left: pinned blocks that can still be had, None for any number; then it is out of memory.
        device_left: the same of blocks of device memory.
        broken: what every call raises, as after a device-side assert; None while all is well.
    """

    def __init__(self, devices: int = 2) -> None:
        self.lock = threading.RLock()
        self.devices = devices
        self.counts: Counter[str] = Counter()
        self.operations: list[tuple[str, FakeStream]] = []
        self.waits: list[str] = []
        self.streams: list[FakeStream] = []
        self.clock_ms = 0.0
        self.allocated = self.most_allocated = 0
        self.allocated_on: Counter[FakeStream] = Counter()
        self.pinned_left: int | None = None
        self.device_left: int | None = None
        self.broken: Exception | None = None
        self.sync_debug_mode = "error"
        self.is_initialized = True
        self._pinned: set[int] = set()
        self.here = threading.local()
        self._defaults: dict[int, FakeStream] = {}
        self.capturing: list[tuple[FakeGraph, int, str]] = []
        self.modes: dict[int, int] = {}
        self._stream_ids = 1
        self._kept: list[torch.Tensor] = []
        self._dispatcher = Dispatcher(self)

    @property
    def launches(self) -> int:
        """Kernels and copies."""
        return self.counts["launches"]

    @property
    def stream(self) -> FakeStream:
        """The current stream of the current device."""
        return self.current(self.current_device())

    def tensor(self, data: Any, dtype: torch.dtype | None = None, device: Any = None, **options: Any) -> CudaTensor:
        """Return a tensor on the device, with its values there already: no launch, no wait."""
        requires_grad = options.pop("requires_grad", False)
        inner = _new_tensor(data, dtype=dtype) if not isinstance(data, torch.Tensor) else data.clone()
        return self.wrap(inner if dtype is None else inner.to(dtype), self.device_of(device), requires_grad)

    def module(self, module: torch.nn.Module, device: Any = None) -> torch.nn.Module:
        """Return a module whose parameters and buffers are on the device now: no launch, no wait."""
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, tensor in held.items():
                    if tensor is not None:
                        moved = self.tensor(tensor.detach(), device=device)
                        is_parameter = held is part._parameters
                        held[name] = torch.nn.Parameter(moved, tensor.requires_grad) if is_parameter else moved
        return module

    def wrap(self, inner: torch.Tensor, device: torch.device, requires_grad: bool = False) -> CudaTensor:
        """Return host memory as a tensor on the device."""
        if self.device_left is not None:
            if self.device_left <= 0:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            self.device_left -= 1
        lease = Lease(self, inner, self.current(device.index))
        return CudaTensor(inner, lease, device, requires_grad)

    def launch(self, kernel: Callable[[], object], device: Any = None) -> None:
        """Launch a kernel that torch knows nothing of, such as one of Triton's."""
        stream = self.current(self.device_of(device).index)
        self.count_launch(stream)
        stream.queue(kernel)

    def count(self, what: str, how_many: int = 1) -> None:
        """Count what is asked of the card, by whatever thread."""
        with self.lock:
            self.counts[what] += how_many

    def count_launch(self, stream: FakeStream) -> None:
        """Count a kernel or a copy."""
        with self.lock:
            self.counts["launches"] += 1
            stream.launches += 1

    def run(self) -> None:
        """Have every stream that is not held do what it can."""
        with self.lock:
            while sum(stream.go_on() for stream in list(self.streams)):
                pass

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count what is asked of the card in the block, by whatever thread: a run's background thread, too."""
        before, found = Counter(self.counts), Counter[str]()
        yield found
        found.update(self.counts - before)

    def wait(self, call: str) -> None:
        """Whatever waits for the device comes here."""
        self.waits.append(f"{call} on thread {threading.current_thread().name}")
        if self.is_captured(self.stream):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        if self.sync_debug_mode == "error":
            raise RuntimeError("called a synchronizing CUDA operation")
        if self.sync_debug_mode == "warn":
            warnings.warn("called a synchronizing CUDA operation", UserWarning, stacklevel=3)
        self.run()
        if any(not stream.is_idle for stream in self.streams):
            raise AssertionError(f"{call} waits for ever: the stream is held.")

    def fail_if_broken(self) -> None:
        if self.broken is not None:
            raise self.broken

    def unsafe_while_captured(self, call: str) -> None:
        """A call that breaks captures of any thread, unless its own thread's mode says otherwise."""
        is_global = self.modes.get(threading.get_ident(), 0) == 0
        for graph, thread, mode in self.capturing:
            if thread == threading.get_ident() or (is_global and mode == "global"):
                graph.broken_by = call
                raise RuntimeError(f"CUDA error: operation would make the capture unsafe: {call}")

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        with self.lock:
            return self._dispatcher.dispatch(func, args, kwargs)

    def current_device(self) -> int:
        return int(getattr(self.here, "device", 0))

    def device_of(self, device: Any) -> torch.device:
        if device is None:
            return torch.device("cuda", self.current_device())
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return found if found.index is not None else torch.device("cuda", self.current_device())

    def next_stream_id(self) -> int:
        with self.lock:
            self._stream_ids += 2
            return self._stream_ids

    def default(self, device: int) -> FakeStream:
        with self.lock:
            if device not in self._defaults:
                self._defaults[device] = FakeStream(device, stream_id=0)
            return self._defaults[device]

    def current(self, device: int) -> FakeStream:
        found: FakeStream = self._current_streams().get(device) or self.default(device)
        return found

    def set_current(self, stream: FakeStream) -> None:
        self._current_streams()[stream.device.index] = stream

    def _current_streams(self) -> dict[int, FakeStream]:
        if not hasattr(self.here, "streams"):
            self.here.streams = {}
        found: dict[int, FakeStream] = self.here.streams
        return found

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return not isinstance(tensor, CudaTensor) and tensor.untyped_storage().data_ptr() in self._pinned

    def is_captured(self, stream: FakeStream) -> bool:
        return stream.captured is not None

    def new_pinned(self, block: torch.Tensor) -> torch.Tensor:
        self.fail_if_broken()
        self.unsafe_while_captured("cudaHostAlloc")
        if self.pinned_left is not None:
            if self.pinned_left <= 0:
                raise RuntimeError("CUDA error: out of memory")
            self.pinned_left -= 1
        self.count("pinned")
        block.untyped_storage().fill_(GARBAGE)
        place = block.untyped_storage().data_ptr()
        self._pinned.add(place)
        weakref.finalize(block.untyped_storage(), self._pinned.discard, place)
        self._kept.append(block)  # its storage's Python object would go with its last user here, the memory would not
        return block
