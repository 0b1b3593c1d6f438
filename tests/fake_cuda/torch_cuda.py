"""`torch.cuda`, and what else of torch reaches a device, put in the place of the true one."""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.fake_cuda.dispatch import ALLOCATING
from tests.fake_cuda.streams import FakeEvent, FakeGraph, FakeStream
from tests.fake_cuda.tensors import GARBAGE, CudaTensor, inner_of

__all__ = ["TorchCuda"]

_FILL = 0x7F
_FACTORIES = (
    "empty", "empty_strided", "zeros", "ones", "full", "tensor", "as_tensor", "scalar_tensor", "arange", "linspace",
    "eye", "rand", "randn", "randint", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
)  # fmt: skip


class TorchCuda:
    """The calls of torch for one card."""

    def __init__(self, card: Any) -> None:
        self.card = card
        self._real: dict[str, Callable[..., Any]] = {}

    @contextmanager
    def _device_context(self, device: Any) -> Iterator[None]:
        before = self.card.current_device()
        self.card.here.device = self.card.device_of(device).index
        try:
            yield
        finally:
            self.card.here.device = before

    @contextmanager
    def _stream_context(self, stream: FakeStream | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        with self._device_context(stream.device), stream:
            yield

    @contextmanager
    def _graph_context(
        self, graph: FakeGraph, pool: Any = None, stream: FakeStream | None = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        stream = FakeStream() if stream is None else stream
        capturing = (graph, threading.get_ident(), capture_error_mode)
        stream.captured = graph
        self.card.capturing.append(capturing)
        try:
            with self._stream_context(stream):
                yield
        finally:
            stream.captured = None
            self.card.capturing.remove(capturing)
        if graph.broken_by is not None:
            raise RuntimeError(
                f"CUDA error: operation failed due to a previous error during capture: {graph.broken_by}"
            )

    def _set_sync_debug_mode(self, mode: int | str) -> None:
        self.card.sync_debug_mode = mode if isinstance(mode, str) else ("default", "warn", "error")[mode]

    def _pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor itself where it is pinned already, as torch does."""
        if self.card.is_pinned(tensor):
            return tensor
        return self.card.new_pinned(torch.empty_like(tensor)).copy_(tensor)

    def _exchange_capture_mode(self, mode: Any) -> int:
        given = mode._obj if hasattr(mode, "_obj") else mode.contents
        before = self.card.modes.get(threading.get_ident(), 0)
        self.card.modes[threading.get_ident()], given.value = given.value, before
        return 0

    def _library(self, real: Any) -> Any:
        """Stand in for the driver's library."""

        class Driver:
            cuThreadExchangeStreamCaptureMode = staticmethod(self._exchange_capture_mode)  # noqa: N815 (CUDA's name)
            cudaThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode  # noqa: N815

        def opened(name: Any, *args: Any, **kwargs: Any) -> Any:
            is_ours = isinstance(name, str) and name.startswith(("libcuda.", "libcudart."))
            return Driver() if is_ours else real(name, *args, **kwargs)

        return opened

    def _factory(self, real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            device = kwargs.get("device")
            like = args[0] if args and name.endswith("_like") else None
            if kwargs.pop("pin_memory", False):
                if isinstance(like, CudaTensor):
                    kwargs = {"dtype": like.dtype, **kwargs}
                    args = (like.inner, *args[1:])
                return self.card.new_pinned(real(*args, **kwargs))
            is_here = (
                device is not None and torch.device(device if not isinstance(device, int) else "cuda").type == "cuda"
            )
            if not is_here:
                return real(*args, **kwargs)
            if name in {"tensor", "as_tensor"} and not any(isinstance(one, CudaTensor) for one in args):
                self.card.wait(f"torch.{name}(device='cuda')")
            requires_grad = kwargs.pop("requires_grad", False)
            args = tuple(inner_of(one) for one in args)
            inner = real(*args, **{**kwargs, "device": "cpu"})
            if name not in ALLOCATING:
                self.card.count_launch(self.card.current(self.card.device_of(device).index))
            self.card.count("operations")
            if name in ALLOCATING:
                inner.untyped_storage().fill_(GARBAGE)
            if name in ALLOCATING and inner.numel() and _fills_new_memory():
                self.card.launch(lambda: inner.fill_(_FILL))
            return self.card.wrap(inner, self.card.device_of(device), requires_grad)

        return made

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Be `torch.cuda`."""
        # Who imports it first keeps what `torch.cuda` is then, and derives a class from `torch.Event`.
        importlib.import_module("torch._dynamo.device_interface")
        torch._C._ensureCUDADeviceGuardSet()  # else torch asks the driver which device is current, to index a tensor
        self._real = {name: getattr(torch, name) for name in _FACTORIES}
        for name, real in self._real.items():
            patch.setattr(torch, name, self._factory(real, name))
        to, pin = torch.Tensor.to, torch.Tensor.pin_memory
        patch.setattr(torch.Tensor, "to", lambda tensor, *args, **kwargs: self._moved(to, tensor, args, kwargs))
        patch.setattr(
            torch.Tensor, "cuda", lambda tensor, device=None, non_blocking=False: tensor.to(self.card.device_of(device))
        )
        patch.setattr(torch.Tensor, "is_pinned", lambda tensor, *_: self.card.is_pinned(tensor))
        patch.setattr(
            torch.Tensor,
            "pin_memory",
            lambda tensor, *args: self._pinned(tensor) if self.card.is_initialized else pin(tensor, *args),
        )
        patch.setattr(torch, "UntypedStorage", _Storage)
        patch.setattr(ctypes, "CDLL", self._library(ctypes.CDLL))
        event = {"__new__": lambda _, device=None, enable_timing=False: FakeEvent(enable_timing)}
        patch.setattr(torch, "Event", type("Event", (), event))  # a class: torch._dynamo makes others of it
        for name, stand_in in self._of_torch_cuda().items():
            patch.setattr(torch.cuda, name, stand_in, raising=False)
        for name, stand_in in {
            "_cuda_getCurrentStream": lambda device: self._stream_key(self.card.current(device)),
            "_cuda_isCurrentStreamCapturing": lambda: self.card.is_captured(self.card.stream),
            "_cuda_getDevice": self.card.current_device,
            "_cuda_getCurrentRawStream": lambda device: self.card.current(device).cuda_stream,
            "_cuda_hasPrimaryContext": lambda device: any(
                stream.device.index == device for stream in self.card.streams
            ),
            "_cuda_memoryStats": self._memory,
            "_cuda_resetPeakMemoryStats": lambda device: setattr(self.card, "most_allocated", self.card.allocated),
        }.items():
            patch.setattr(torch._C, name, stand_in, raising=False)

    def _memory(self, device: int) -> dict[str, dict[str, dict[str, int]]]:
        numbers = {"all": {"current": self.card.allocated, "peak": self.card.most_allocated}}
        return {"allocated_bytes": numbers, "reserved_bytes": numbers}

    def _moved(self, real: Any, tensor: torch.Tensor, args: Any, kwargs: Any) -> Any:
        target = kwargs.get("device", args[0] if args else None)
        try:
            place = torch.device(target) if isinstance(target, (str, torch.device)) else None
        except RuntimeError:
            place = None
        if isinstance(tensor, CudaTensor) or place is None or place.type != "cuda":
            return real(tensor, *args, **kwargs)
        is_free = kwargs.get("non_blocking", False) or not self.card.sync_debug_mode
        if not is_free and self.card.sync_debug_mode != "default":
            self.card.wait("Tensor.to('cuda')")
        dtype = kwargs.get("dtype", next((one for one in args[1:] if isinstance(one, torch.dtype)), tensor.dtype))
        stream = self.card.current(self.card.device_of(place).index)
        self.card.count_launch(stream)
        self.card.count("copies")
        there = tensor.detach().clone().to(dtype)
        if kwargs.get("non_blocking", False) and self.card.is_pinned(tensor):  # it is read when its turn comes
            stream.queue(lambda: there.copy_(tensor.detach()))
        return self.card.wrap(there, self.card.device_of(place), tensor.requires_grad)

    @staticmethod
    def _stream_key(stream: FakeStream) -> tuple[int, int, int]:
        return stream.stream_id, stream.device_index, stream.device_type

    def _stream_made(self, *args: Any, **kwargs: Any) -> FakeStream:
        """Return the stream that is meant by an id, or a new one: `torch.cuda.Stream` does both."""
        wanted = kwargs.get("stream_id")
        index = kwargs.get("device_index", 0)
        if wanted == 0:
            return self.card.default(index)
        return next(
            (
                one
                for one in self.card.streams
                if wanted is not None and (one.stream_id, one.device_index) == (wanted, index)
            ),
            None,
        ) or FakeStream(*args, **kwargs)

    def _of_torch_cuda(self) -> dict[str, Any]:
        stream = type("Stream", (), {"__new__": lambda _, *args, **kwargs: self._stream_made(*args, **kwargs)})
        return {
            "Event": FakeEvent,
            "Stream": stream,
            "CUDAGraph": FakeGraph,
            "graph": self._graph_context,
            "stream": self._stream_context,
            "device": self._device_context,
            "set_stream": self.card.set_current,
            "set_device": lambda device: setattr(self.card.here, "device", self.card.device_of(device).index),
            "current_stream": lambda device=None: self.card.current(self.card.device_of(device).index),
            "default_stream": lambda device=None: self.card.default(self.card.device_of(device).index),
            "current_device": self.card.current_device,
            "device_count": lambda: self.card.devices,
            "is_available": lambda: True,
            "is_initialized": lambda: self.card.is_initialized,
            "init": lambda: None,
            "_lazy_init": lambda: None,
            "synchronize": lambda device=None: self.card.wait("torch.cuda.synchronize()"),
            "is_current_stream_capturing": lambda: self.card.is_captured(self.card.stream),
            "set_sync_debug_mode": self._set_sync_debug_mode,
            "get_sync_debug_mode": lambda: ("default", "warn", "error").index(self.card.sync_debug_mode),
            "memory_allocated": lambda device=None: self.card.allocated,
            "memory_reserved": lambda device=None: self.card.allocated,
            "max_memory_allocated": lambda device=None: self.card.most_allocated,
            "reset_peak_memory_stats": lambda device=None: setattr(self.card, "most_allocated", self.card.allocated),
            "memory_stats": lambda device=None: {
                "allocated_bytes.all.current": self.card.allocated,
                "allocated_bytes.all.peak": self.card.most_allocated,
                "reserved_bytes.all.current": self.card.allocated,
                "reserved_bytes.all.peak": self.card.most_allocated,
            },
            "get_device_properties": lambda device=None: SimpleNamespace(name="fake", total_memory=80 * 2**30),
            "_sleep": lambda cycles: self.card.launch(lambda: None),
            "get_device_name": lambda device=None: "a card that is not there",
        }


def _fills_new_memory() -> bool:
    """Whether torch fills what it allocates; that is a launch, and within a capture part of the graph."""
    is_on: bool = torch.utils.deterministic.fill_uninitialized_memory
    return torch.are_deterministic_algorithms_enabled() and is_on


class _Storage(torch.UntypedStorage):
    """Memory of a device without a tensor; in truth of the host."""

    def __new__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return _UntypedStorage(*args, device=device, **kwargs)
        return _UntypedStorage(*args, device="cpu", **kwargs).fill_(GARBAGE)


_UntypedStorage = torch.UntypedStorage
