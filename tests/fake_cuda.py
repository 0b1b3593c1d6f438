"""A CUDA device that is not there: tensors, streams, events, pinned memory and graphs, without a card or a driver.

```python
def test_a_value_is_what_the_tensor_held_at_the_call(recorded, cuda):  # fixtures of tests/unit/otel_ml
    cuda.stream.hold()  # the device is behind: what is launched from now on waits
    loss = cuda.tensor(3.0)
    log({"loss": loss})
    loss.zero_()
    cuda.stream.release()  # it does now what was launched, in order
    ...
    assert cuda.launches == 2 and cuda.waits == []
```

What it gets right, so that a wrong program fails:

* Work is launched into the current stream and done in its order, at once, or, while the stream is held, at its
  release. Streams know nothing of each other but by events (`wait_event`, `wait_stream`).
* A copy into pinned memory has arrived when the stream came to it. Until then the memory holds garbage. One into
  memory that is not pinned waits for the device.
* Memory of a device that is freed is garbage as soon as the stream that it was allocated on comes to where it was
  freed; a stream that still reads it reads garbage, unless `record_stream()` was called.
* Whatever waits for the device (`.item()`, `.cpu()`, `.tolist()`, `synchronize()`, a blocking copy) is in `waits`, of
  whatever thread. It raises while `set_sync_debug_mode("error")`, which is how a test begins, and warns under "warn".
* While a stream is captured, its work goes into the graph; a wait raises. A thread whose calls the capture forbids
  (`Event.query()`, a new pinned block), because its mode is still global, breaks the capture, as on a card.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
import warnings
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["CudaTensor", "FakeCuda", "fake_cuda"]

_GARBAGE = 0x5A
_FILL = 0x7F
_ALLOCATING = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_READING = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "item", "unique_dim", "_unique2"}
_FACTORIES = (
    "empty", "empty_strided", "zeros", "ones", "full", "tensor", "as_tensor", "scalar_tensor", "arange", "linspace",
    "eye", "rand", "randn", "randint", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
)  # fmt: skip


class _Lease:
    """The use of a piece of device memory by the tensors that show it; freed with the last of them."""

    def __init__(self, card: FakeCuda, inner: torch.Tensor, stream: FakeStream) -> None:
        self.streams = {stream: None}
        size = -(-max(inner.untyped_storage().nbytes(), 1) // 512) * 512
        with card.lock:
            card.allocated += size
            card.allocated_on[stream] += size
            card.most_allocated = max(card.most_allocated, card.allocated)
        weakref.finalize(self, _freed, card, inner, stream, self.streams, size)


def _freed(card: FakeCuda, inner: torch.Tensor, stream: FakeStream, users: dict[FakeStream, None], size: int) -> None:
    with card.lock:
        card.allocated -= size
        card.allocated_on[stream] -= size
    for user in users:
        if user is not stream:  # `record_stream()`: used again when that one has come here
            event = FakeEvent()
            event.record(user)
            stream.wait_event(event)
    stream.queue(lambda: inner.untyped_storage().fill_(_GARBAGE))


class CudaTensor(torch.Tensor):
    """A tensor that says it is on `cuda:N`; its memory is a tensor of the host, which nobody may look at.

    Attributes:
        inner: that tensor. A test may read it, when the streams have done what was launched.
    """

    inner: torch.Tensor
    lease: _Lease

    @staticmethod
    def __new__(cls, inner: torch.Tensor, lease: _Lease, device: torch.device, requires_grad: bool = False) -> Any:
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
            requires_grad=requires_grad,
        )
        found.inner, found.lease = inner, lease
        return found

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _card().dispatch(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        _card().wait("tolist()")
        return self.inner.tolist()

    def record_stream(self, stream: FakeStream) -> None:
        self.lease.streams[stream] = None

    def set_(self, storage: Any, offset: int = 0, size: Any = ()) -> Any:  # type: ignore[override]
        """Return a tensor that shows a storage; the true `set_()` returns the tensor itself, which shows it now."""
        inner = torch.empty(0, dtype=self.dtype, device="cpu").set_(storage, offset, size)
        return _card().wrap(inner, self.device)

    def __repr__(self, **_: object) -> str:  # type: ignore[override] # torch's would read it
        return f"CudaTensor({tuple(self.shape)}, {self.dtype}, {self.device})"


class FakeStream:
    """Work that is done in order; at once, unless it is held.

    Attributes:
        launches: kernels and copies that it was given, or a graph that it is captured into.
    """

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **_: object) -> None:
        card = _card()
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
        _card().run()

    def run(self, operations: int) -> None:
        """Do the next of what was launched, and go on being held."""
        with _card().lock:
            for _ in range(min(operations, len(self._waiting))):
                self._do_next()
            _card().run()

    def queue(self, work: Callable[[], object]) -> None:
        with _card().lock:
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
        _card().unsafe_while_captured("Stream.query()")
        _card().fail_if_broken()
        if self.captured is not None:
            self.captured.broken_by = "Stream.query() of a stream that is captured"
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        return self.is_idle

    def synchronize(self) -> None:
        _card().wait("Stream.synchronize()")

    def __enter__(self) -> FakeStream:
        before = self._before.__dict__.setdefault("streams", [])  # of this thread, as the current stream is
        before.append(_card().current(self.device.index))
        _card().set_current(self)
        return self

    def __exit__(self, *_: object) -> None:
        _card().set_current(self._before.streams.pop())


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
        _card().count("events made")

    def record(self, stream: FakeStream | None = None) -> None:
        card = _card()
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
        card = _card()
        card.unsafe_while_captured("Event.query()")
        card.fail_if_broken()
        card.count("queries")
        return self.mark is None or self.mark.is_reached

    def wait(self, stream: FakeStream | None = None) -> None:
        (_card().stream if stream is None else stream).wait_event(self)

    def synchronize(self) -> None:
        _card().wait("Event.synchronize()")

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
        stream = _card().stream
        _card().count_launch(stream)
        for work in self.work:
            stream.queue(work)

    def reset(self) -> None:
        self.work.clear()


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
        self._here = threading.local()
        self._defaults: dict[int, FakeStream] = {}
        self._capturing: list[tuple[FakeGraph, int, str]] = []
        self._modes: dict[int, int] = {}
        self._stream_ids = 1

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
        inner = self._real["tensor"](data, dtype=dtype) if not isinstance(data, torch.Tensor) else data.clone()
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
        lease = _Lease(self, inner, self.current(device.index))
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
        if self._is_captured(self.stream):
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
        is_global = self._modes.get(threading.get_ident(), 0) == 0
        for graph, thread, mode in self._capturing:
            if thread == threading.get_ident() or (is_global and mode == "global"):
                graph.broken_by = call
                raise RuntimeError(f"CUDA error: operation would make the capture unsafe: {call}")

    # What torch asks.

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        with self.lock:
            return self._dispatch(func, args, kwargs)

    def _dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        self.fail_if_broken()
        name = func.overloadpacket.__name__
        flat, _ = tree_flatten((args, kwargs))
        tensors = [item for item in flat if isinstance(item, CudaTensor)]
        target = kwargs.get("device")
        target = None if target is None else torch.device(target)
        device = tensors[0].device if tensors else self.device_of(target)
        if target is not None and target.type == "cuda":
            device = self.device_of(target)
        stream = self.current(device.index)
        self.counts["operations"] += 1
        self.operations.append((name, stream))
        if _looks_at_indices(name, args):
            self.wait(f"{name}(), which has its indices looked at on the host")
        if name in _READING:
            self.wait(f"{name}()")
            return tree_map(self._wrapped_on(device), func(*tree_map(_inner, args), **tree_map(_inner, kwargs)))
        if name == "_to_copy" and target is not None and target.type == "cpu":
            return self._to_host(args[0], kwargs, stream)
        if name == "copy_" and (not isinstance(args[0], CudaTensor) or not isinstance(args[1], CudaTensor)):
            return self._copy(args, kwargs, stream)
        places = {item.device for item in flat if isinstance(item, torch.Tensor) and item.dim() > 0}
        if len(places) > 1 and name != "copy_":
            raise RuntimeError(f"Expected all tensors to be on the same device, but found {sorted(map(str, places))}")
        return self._kernel(func, name, args, kwargs, device, stream)

    def _to_host(self, source: CudaTensor, kwargs: dict[str, Any], stream: FakeStream) -> torch.Tensor:
        dtype = kwargs.get("dtype") or source.dtype
        found: torch.Tensor = torch.empty(source.shape, dtype=dtype, pin_memory=bool(kwargs.get("pin_memory")))
        if not (kwargs.get("non_blocking") and self.is_pinned(found)):
            self.wait("a copy to the host")
        return self._copy((found, source, True), {}, stream)

    def _copy(self, args: Any, kwargs: dict[str, Any], stream: FakeStream) -> Any:
        into, source = args[:2]
        non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
        host = source if isinstance(into, CudaTensor) else into
        if not non_blocking or (not self.is_pinned(host) and host is into):
            self.wait("a blocking copy")
        to, what = _inner(into), _inner(source)
        if host is source and not self.is_pinned(host):
            what = what.clone()
        self.count_launch(stream)
        self.count("copies")
        stream.queue(lambda: to.copy_(what))
        return into

    def _kernel(self, func: Any, name: str, args: Any, kwargs: Any, device: torch.device, stream: FakeStream) -> Any:
        schema = func._schema
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        kwargs = {key: item for key, item in kwargs.items() if key != "pin_memory"}
        inner_args, inner_kwargs = tree_map(_inner, (args, kwargs))
        aliases = [found.alias_info for found in schema.returns]
        if aliases and all(alias is not None and not alias.is_write for alias in aliases):
            return self._viewed(func(*inner_args, **inner_kwargs), args)
        written = {
            next(iter(given.alias_info.before_set), None): kwargs[given.name] if given.name in kwargs else args[place]
            for place, given in enumerate(schema.arguments)
            if given.alias_info is not None and given.alias_info.is_write
            if given.name in kwargs or place < len(args)
        }
        if name not in _ALLOCATING:
            self.count_launch(stream)
        if written and all(alias is not None for alias in aliases):
            stream.queue(lambda: func(*inner_args, **inner_kwargs))
            found = [written[next(iter(alias.before_set))] for alias in aliases if alias is not None]
            return None if not found else found[0] if len(found) == 1 else tuple(found)
        return self._launched(func, inner_args, inner_kwargs, device, stream, written, aliases)

    def _launched(
        self, func: Any, args: Any, kwargs: Any, device: torch.device, stream: FakeStream, written: Any, aliases: Any
    ) -> Any:
        """Return what a kernel will have written: garbage until the stream has come to it."""
        tried_args, tried_kwargs = tree_map(_blank, (args, kwargs))
        shapes, form = tree_flatten(func(*tried_args, **tried_kwargs))
        results = [torch.empty_strided(item.shape, item.stride(), dtype=item.dtype) for item in shapes]
        for result in results:
            result.untyped_storage().fill_(_GARBAGE)

        def work() -> None:
            for result, value in zip(results, tree_flatten(func(*args, **kwargs))[0], strict=True):
                result.copy_(value)

        stream.queue(work)
        found = [self.wrap(result, device) for result in results]
        if written and len(found) == len(aliases):
            found = [
                one if alias is None else written[next(iter(alias.before_set))]
                for one, alias in zip(found, aliases, strict=True)
            ]
        return tree_unflatten(found, form)

    def _viewed(self, views: Any, args: Any) -> Any:
        base = next(item for item in tree_flatten(args)[0] if isinstance(item, CudaTensor))
        return tree_map(
            lambda view: CudaTensor(view, base.lease, base.device) if isinstance(view, torch.Tensor) else view, views
        )

    def _wrapped_on(self, device: torch.device) -> Callable[[Any], Any]:
        return lambda item: self.wrap(item, device) if isinstance(item, torch.Tensor) else item

    # What `torch.cuda` is asked.

    def current_device(self) -> int:
        return int(getattr(self._here, "device", 0))

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
        if not hasattr(self._here, "streams"):
            self._here.streams = {}
        found: dict[int, FakeStream] = self._here.streams
        return found

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return not isinstance(tensor, CudaTensor) and tensor.untyped_storage().data_ptr() in self._pinned

    def _is_captured(self, stream: FakeStream) -> bool:
        return stream.captured is not None

    @contextmanager
    def _device_context(self, device: Any) -> Iterator[None]:
        before = self.current_device()
        self._here.device = self.device_of(device).index
        try:
            yield
        finally:
            self._here.device = before

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
        self._capturing.append(capturing)
        try:
            with self._stream_context(stream):
                yield
        finally:
            stream.captured = None
            self._capturing.remove(capturing)
        if graph.broken_by is not None:
            raise RuntimeError(
                f"CUDA error: operation failed due to a previous error during capture: {graph.broken_by}"
            )

    def _set_sync_debug_mode(self, mode: int | str) -> None:
        self.sync_debug_mode = mode if isinstance(mode, str) else ("default", "warn", "error")[mode]

    def _exchange_capture_mode(self, mode: Any) -> int:
        given = mode._obj if hasattr(mode, "_obj") else mode.contents
        before = self._modes.get(threading.get_ident(), 0)
        self._modes[threading.get_ident()], given.value = given.value, before
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
                return self._new_pinned(real(*args, **kwargs))
            is_here = (
                device is not None and torch.device(device if not isinstance(device, int) else "cuda").type == "cuda"
            )
            if not is_here:
                return real(*args, **kwargs)
            if name in {"tensor", "as_tensor"} and not any(isinstance(one, CudaTensor) for one in args):
                self.wait(f"torch.{name}(device='cuda')")
            requires_grad = kwargs.pop("requires_grad", False)
            args = tuple(_inner(one) for one in args)
            inner = real(*args, **{**kwargs, "device": "cpu"})
            if name not in _ALLOCATING:
                self.count_launch(self.current(self.device_of(device).index))
            self.count("operations")
            if name in _ALLOCATING:
                inner.untyped_storage().fill_(_GARBAGE)
            if name in _ALLOCATING and inner.numel() and _fills_new_memory():
                self.launch(lambda: inner.fill_(_FILL))
            return self.wrap(inner, self.device_of(device), requires_grad)

        return made

    def _new_pinned(self, block: torch.Tensor) -> torch.Tensor:
        self.fail_if_broken()
        self.unsafe_while_captured("cudaHostAlloc")
        if self.pinned_left is not None:
            if self.pinned_left <= 0:
                raise RuntimeError("CUDA error: out of memory")
            self.pinned_left -= 1
        self.count("pinned")
        block.untyped_storage().fill_(_GARBAGE)
        place = block.untyped_storage().data_ptr()
        self._pinned.add(place)
        weakref.finalize(block.untyped_storage(), self._pinned.discard, place)
        _KEPT.append(block)  # its storage's Python object would go with its last user here, the memory would not
        return block

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
            torch.Tensor, "cuda", lambda tensor, device=None, non_blocking=False: tensor.to(self.device_of(device))
        )
        patch.setattr(torch.Tensor, "is_pinned", lambda tensor, *_: self.is_pinned(tensor))
        patch.setattr(
            torch.Tensor,
            "pin_memory",
            lambda tensor, *args: (
                pin(tensor, *args)
                if not self.is_initialized
                else self._new_pinned(torch.empty_like(tensor)).copy_(tensor)
            ),
        )
        patch.setattr(torch, "UntypedStorage", _Storage)
        patch.setattr(ctypes, "CDLL", self._library(ctypes.CDLL))
        event = {"__new__": lambda _, device=None, enable_timing=False: FakeEvent(enable_timing)}
        patch.setattr(torch, "Event", type("Event", (), event))  # a class: torch._dynamo makes others of it
        for name, stand_in in self._of_torch_cuda().items():
            patch.setattr(torch.cuda, name, stand_in, raising=False)
        for name, stand_in in {
            "_cuda_getCurrentStream": lambda device: self._stream_key(self.current(device)),
            "_cuda_isCurrentStreamCapturing": lambda: self._is_captured(self.stream),
            "_cuda_getDevice": self.current_device,
            "_cuda_getCurrentRawStream": lambda device: self.current(device).cuda_stream,
            "_cuda_hasPrimaryContext": lambda device: any(stream.device.index == device for stream in self.streams),
            "_cuda_memoryStats": self._memory,
            "_cuda_resetPeakMemoryStats": lambda device: setattr(self, "most_allocated", self.allocated),
        }.items():
            patch.setattr(torch._C, name, stand_in, raising=False)

    def _memory(self, device: int) -> dict[str, dict[str, dict[str, int]]]:
        numbers = {"all": {"current": self.allocated, "peak": self.most_allocated}}
        return {"allocated_bytes": numbers, "reserved_bytes": numbers}

    def _moved(self, real: Any, tensor: torch.Tensor, args: Any, kwargs: Any) -> Any:
        target = kwargs.get("device", args[0] if args else None)
        try:
            place = torch.device(target) if isinstance(target, (str, torch.device)) else None
        except RuntimeError:
            place = None
        if isinstance(tensor, CudaTensor) or place is None or place.type != "cuda":
            return real(tensor, *args, **kwargs)
        is_free = kwargs.get("non_blocking", False) or not self.sync_debug_mode
        if not is_free and self.sync_debug_mode != "default":
            self.wait("Tensor.to('cuda')")
        dtype = kwargs.get("dtype", next((one for one in args[1:] if isinstance(one, torch.dtype)), tensor.dtype))
        self.count_launch(self.current(self.device_of(place).index))
        self.count("copies")
        return self.wrap(tensor.detach().clone().to(dtype), self.device_of(place), tensor.requires_grad)

    @staticmethod
    def _stream_key(stream: FakeStream) -> tuple[int, int, int]:
        return stream.stream_id, stream.device_index, stream.device_type

    def _stream_made(self, *args: Any, **kwargs: Any) -> FakeStream:
        """Return the stream that is meant by an id, or a new one: `torch.cuda.Stream` does both."""
        wanted = kwargs.get("stream_id")
        index = kwargs.get("device_index", 0)
        if wanted == 0:
            return self.default(index)
        return next(
            (
                one
                for one in self.streams
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
            "set_stream": self.set_current,
            "set_device": lambda device: setattr(self._here, "device", self.device_of(device).index),
            "current_stream": lambda device=None: self.current(self.device_of(device).index),
            "default_stream": lambda device=None: self.default(self.device_of(device).index),
            "current_device": self.current_device,
            "device_count": lambda: self.devices,
            "is_available": lambda: True,
            "is_initialized": lambda: self.is_initialized,
            "init": lambda: None,
            "_lazy_init": lambda: None,
            "synchronize": lambda device=None: self.wait("torch.cuda.synchronize()"),
            "is_current_stream_capturing": lambda: self._is_captured(self.stream),
            "set_sync_debug_mode": self._set_sync_debug_mode,
            "get_sync_debug_mode": lambda: ("default", "warn", "error").index(self.sync_debug_mode),
            "memory_allocated": lambda device=None: self.allocated,
            "memory_reserved": lambda device=None: self.allocated,
            "max_memory_allocated": lambda device=None: self.most_allocated,
            "reset_peak_memory_stats": lambda device=None: setattr(self, "most_allocated", self.allocated),
            "memory_stats": lambda device=None: {
                "allocated_bytes.all.current": self.allocated,
                "allocated_bytes.all.peak": self.most_allocated,
                "reserved_bytes.all.current": self.allocated,
                "reserved_bytes.all.peak": self.most_allocated,
            },
            "get_device_properties": lambda device=None: SimpleNamespace(name="fake", total_memory=80 * 2**30),
            "_sleep": lambda cycles: self.launch(lambda: None),
            "get_device_name": lambda device=None: "a card that is not there",
        }


def _fills_new_memory() -> bool:
    """Whether torch fills what it allocates; that is a launch, and within a capture part of the graph."""
    is_on: bool = torch.utils.deterministic.fill_uninitialized_memory
    return torch.are_deterministic_algorithms_enabled() and is_on


def _looks_at_indices(name: str, args: Any) -> bool:
    """Whether an operation on CUDA asks for `index.max().item()`, as those do that sort indices to be deterministic."""
    if not torch.are_deterministic_algorithms_enabled():
        return False
    is_told_not_to = name == "_index_put_impl_" and len(args) > 4 and args[4]
    return name in {"index_copy_", "index_copy", "index_put_", "index_put", "_index_put_impl_"} and not is_told_not_to


class _Storage(torch.UntypedStorage):
    """Memory of a device without a tensor; in truth of the host."""

    def __new__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return _UntypedStorage(*args, device=device, **kwargs)
        return _UntypedStorage(*args, device="cpu", **kwargs).fill_(_GARBAGE)


_UntypedStorage = torch.UntypedStorage
_KEPT: list[torch.Tensor] = []
_ACTIVE: list[FakeCuda] = []


def _card() -> FakeCuda:
    return _ACTIVE[-1]


def _inner(item: Any) -> Any:
    return item.inner if isinstance(item, CudaTensor) else item


def _blank(item: Any) -> Any:
    if not isinstance(item, torch.Tensor):
        return item
    return (
        torch.zeros(1, dtype=item.dtype).as_strided(item.shape, [0] * item.dim())
        if item.numel() == 0
        else (torch.empty_strided(item.shape, item.stride(), dtype=item.dtype).zero_())
    )


def _forget_other_cards() -> None:
    """Have otel_ml know no card, as in a process that has just begun."""
    from otel_ml._internal.devices import arrays, device_batch, device_timers
    from otel_ml._internal.devices import cuda as cuda_calls
    from otel_ml._internal.devices import cuda_graphs as captured
    from otel_ml._internal.devices import cuda_thread as device_thread

    captured.CAPTURED.forget()  # a graph outlives its run, since it may be replayed in the next one, but not its card
    cuda_calls.CUDA.forget()
    device_timers.DEVICE_TIMERS.forget()
    device_batch.STAGING.__init__()  # type: ignore[misc]
    arrays._streams.clear()
    device_thread._here.__dict__.clear()


@contextmanager
def fake_cuda(devices: int = 2) -> Iterator[FakeCuda]:
    """Have CUDA devices in this process; `torch.cuda` is theirs in the block."""
    card = FakeCuda(devices)
    _ACTIVE.append(card)
    _forget_other_cards()
    with pytest.MonkeyPatch.context() as patch:
        card.install(patch)
        yield card
        for stream in card.streams:
            stream.release()
    _forget_other_cards()
    _KEPT.clear()
