"""Numbers on a CUDA device, brought to the host a batch at a time, without anybody waiting (ADR 0039).

At the call a value is copied, on the caller's stream and as float64, to its place in a buffer of that stream: that is
what it held at the call, whatever becomes of the tensor. All values of one call are one launch for each type. When the
step is over, or nobody has recorded for a while, the buffer is copied to pinned memory, which is the batch: one copy
and one event. The background thread asks the event, and reads memory of the host.

The buffer is filled, copied and filled again in the order of its stream, so it needs no events of its own.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from collections import deque
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from otel_ml._internal.background_thread import BackgroundThread
from otel_ml._internal.device_tensor import BeingCapturedError, Deferred
from otel_ml._internal.devices.cuda_thread import be_on, captures_left_alone
from otel_ml._internal.devices.pinned_memory import SIZE, Block, PinnedPool, prefixes
from otel_ml._internal.devices.plain_torch_mode import plain_torch_mode, untransformed
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.row import Row
from otel_ml._internal.steps.axes import Step

__all__ = ["STAGING", "BacklogError", "Batch", "Staged", "StagedRow", "launch", "launch_plainly"]

_SHORTEST_S = 0.005
"""Seconds that a batch is filled at least: a tight loop has a step in each call."""

_LONGEST_S = 0.1
"""The same at most, while the step stays the same and something is recorded."""

_VIEWS = 64
"""Places of the buffer that are made ready at once."""


class BacklogError(Exception):
    """The device is so far behind that all memory for its values is in use."""


class Batch:
    """Values of one stream that travel together.

    Attributes:
        values: what arrived, None until then.
        error: why nothing will.
    """

    __slots__ = ("error", "values")

    def __init__(self) -> None:
        self.values: list[float] | None = None
        self.error: Exception | None = None

    def is_over(self) -> bool:
        """Whether its values are here, or will never be."""
        return self.values is not None or self.error is not None

    def part(self, at: int, size: int) -> list[float]:
        """Return some of the values.

        Raises:
            Exception: what the device raised instead.
        """
        if self.values is None:
            raise self.error or RuntimeError("its copy did not arrive")
        return self.values[at : at + size]


class Staged(Deferred):
    """A scalar or vector on a device, and its place in a batch once it was launched (`launch()`).

    Attributes:
        tensor: what is to be copied; None afterwards.
    """

    __slots__ = ("_at", "_batch", "_size", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self._size: int = tensor.numel()
        self._batch: Batch | None = None
        self._at = 0

    @property
    def size(self) -> int:
        return self._size

    def unlaunched(self) -> Iterable[Staged]:
        return () if self.tensor is None else (self,)

    def launch_alone(self) -> None:
        """Copy it on its device: `launch()` of one value."""
        tensor = self.tensor
        batch, at = STAGING.put_scalar(tensor) if not tensor.dim() else STAGING.put((tensor,), self._size)
        self._batch, self._at, self.tensor = batch, at, None

    def place(self, batch: Batch, at: int) -> None:
        """Be in a batch from now on."""
        self._batch, self._at, self.tensor = batch, at, None

    def ready(self) -> bool:
        return self._batch is not None and self._batch.is_over()

    def read(self) -> list[float]:
        assert self._batch is not None
        return self._batch.part(self._at, self._size)


class StagedRow(Deferred):
    """The values of a row, all of them scalars on one device."""

    __slots__ = ("_at", "_batch", "_row")

    def __init__(self, row: Row, batch: Batch, at: int) -> None:
        self._row = row
        self._batch = batch
        self._at = at

    @property
    def size(self) -> int:
        return len(self._row.series)

    def ready(self) -> bool:
        return self._batch.is_over()

    def read(self) -> list[float]:
        return self._batch.part(self._at, self.size)

    def records(self, series: Any, step: Step, time_ns: int) -> Iterable[Any]:
        return (self._row, step, None, time_ns, *self.read())


class Buffer:
    """Memory of a device that the values of one stream are gathered in."""

    def __init__(self, torch: Any, memory: Any, pool: PinnedPool) -> None:
        self._torch = torch
        self._pool = pool
        self._memory = memory
        self._stream = torch.cuda.current_stream(memory.device)
        self._size = len(memory)
        with plain_torch_mode(torch):
            self._prefixes = prefixes(memory) if self._size == SIZE else ()
        self._scalars: list[Any] = []
        self._lock, self._reading = allocate_lock(), allocate_lock()
        self._under_way: deque[tuple[Batch, Block, int]] = deque()
        self._seen: Batch | None = None
        self.index = memory.device.index
        self.forget()

    def forget(self) -> None:
        """Begin a new batch; what the one before held is dropped."""
        self._batch, self._used = Batch(), 0
        self._step: Step | None = None
        self._since = 0.0

    def put(self, tensors: Sequence[Any], used: int) -> tuple[Batch, int] | None:
        """Copy tensors with so many elements; return their batch and place, or None where there is no place now.

        It never waits: for a caller that has been interrupted here, or a thread that sends the batch, there is no
        place.
        """
        # The holder may be this very thread (a signal handler interrupted `put`) or one that waits for the device. To
        # wait for it here would be a deadlock, or a training step that stands still.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._used and (self._used + used > self._size or self._is_old()):
                self._send()
            return None if self._used + used > self._size else self._put(tensors, used)
        finally:
            self._lock.release()

    def put_scalar(self, scalar: Any) -> tuple[Batch, int] | None:
        """Do what `put()` does of one scalar: the usual case, for which each microsecond counts."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            at = self._used
            if at and (at == self._size or self._is_old()):
                self._send()
                at = self._used
            # The first value of a batch notes its step and time; places that have no view yet are made there, too.
            if at >= len(self._scalars) or not at:
                return None if at == self._size else self._put((scalar,), 1)
            self._used = at + 1
            self._scalars[at].copy_(scalar, non_blocking=True)
            return self._batch, at
        finally:
            self._lock.release()

    def _put(self, tensors: Sequence[Any], used: int) -> tuple[Batch, int]:
        if not self._used:
            self._step, self._since = NOW.step, monotonic()
        at = self._used
        self._used = at + used
        places = self._places(tensors, at) if used == len(tensors) else self._parts(tensors, at)
        _copy_all(self._torch, places, tensors)
        return self._batch, at

    def _is_old(self) -> bool:
        age = monotonic() - self._since
        # Two ages: a finished step is wanted soon, but a loop that logs in a step of its own each time must not cause a
        # copy for every value.
        return age >= (_SHORTEST_S if NOW.step is not self._step else _LONGEST_S)

    def _places(self, tensors: Sequence[Any], at: int) -> list[Any]:
        """Return where scalars go; a vector of one element, too."""
        end = at + len(tensors)
        while len(self._scalars) < end:
            begin = len(self._scalars)
            with plain_torch_mode(self._torch):
                self._scalars += self._memory[begin : begin + _VIEWS].unbind()
        places = self._scalars[at:end]
        return self._parts(tensors, at) if {tensor.dim() for tensor in tensors} != {0} else places

    def _parts(self, tensors: Sequence[Any], at: int) -> list[Any]:
        parts = []
        for tensor in tensors:
            end = at + tensor.numel()
            parts.append(self._memory[at:end].view(tensor.shape))
            at = end
        return parts

    def send_alone(self, tensors: Sequence[Any], used: int) -> tuple[Batch, int]:
        """Copy tensors as a batch of their own.

        Raises:
            BacklogError: there is no pinned memory for it.
        """
        batch, at = self._put(tensors, used)
        if not self._send():
            raise BacklogError
        return batch, at

    def _send(self) -> bool:
        """Copy the batch to pinned memory, on the current stream, which is the buffer's; return whether there is any.

        Without it is filled further.
        """
        # Pinned memory is bounded. While the device is behind, the buffer is filled further; once it is full, values
        # are dropped and counted (`device_backlog`).
        block = self._pool.take(self._torch, self._used) or self._reclaimed()
        if block is None:
            return False
        batch, used = self._batch, self._used
        self.forget()
        try:
            self._begin_copy(block, used)
        except Exception as error:  # noqa: BLE001 (whatever a device raises costs its values, not training)
            batch.error = error
            return True
        # In the order of the stream: if one has not arrived, no later one has, so a look asks one event.
        self._under_way.append((batch, block, used))
        return True

    def _begin_copy(self, block: Block, used: int) -> None:
        try:
            block.begin_copy(self._memory, self._prefixes, used, self._stream)
        except Exception:  # noqa: BLE001 (a mode of the program may forbid it; the values are of before)
            with plain_torch_mode(self._torch):
                block.begin_copy(self._memory, self._prefixes, used, self._stream)

    def _reclaimed(self) -> Block | None:
        """Return a block of what has arrived already, and was not read yet."""
        with captures_left_alone():
            self.read_arrived()
        return self._pool.take(self._torch, self._used) if self._used <= SIZE else None

    def read_arrived(self) -> None:
        """Read what the device has copied by now; in the order of the stream, so the first that has not is the last."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            while self._under_way and self._read(*self._under_way[0]):
                self._under_way.popleft()
        finally:
            self._reading.release()

    @property
    def is_awaited(self) -> bool:
        """Whether a batch is under way."""
        return bool(self._under_way)

    def _read(self, batch: Batch, block: Block, used: int) -> bool:
        try:
            if not block.has_arrived():
                return False
            batch.values = block.read(used)
        except Exception as error:  # noqa: BLE001 (as above)
            batch.error = error
            return True
        self._pool.give_back(block)
        return True

    def is_waiting(self, *, everything: bool) -> bool:
        """Whether values are in the buffer that nobody will send soon: they were there at the last look, too."""
        # Sending a half-full buffer costs a launch: only one that did not change between two looks is sent.
        seen, self._seen = self._seen, self._batch
        return self._used > 0 and (everything or seen is self._batch)

    def is_captured(self) -> bool:
        """Whether the stream is being captured into a graph: then it may not even be asked what it has to do."""
        cuda = self._torch.cuda
        with cuda.stream(self._stream):
            return bool(cuda.is_current_stream_capturing())

    def is_idle(self) -> bool:
        """Whether the stream has nothing to do, so that no launch would wait for room in its queue."""
        return bool(self._stream.query())

    def send_for_caller(self) -> None:
        """Send the batch, on another thread than the one that fills it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            be_on(self.index)
            cuda = self._torch.cuda
            with cuda.stream(self._stream), self._torch.no_grad():
                if self._used and not cuda.is_current_stream_capturing():
                    self._send()
        finally:
            self._lock.release()

    def give_up(self, error: Exception) -> None:
        """Expect nothing anymore of a device that failed."""
        self._batch.error = error
        self.forget()


class Staging:
    """The buffers of this process, one of each stream that something was recorded on."""

    def __init__(self) -> None:
        self._buffers: dict[object, Buffer] = {}
        self._alone: deque[Buffer] = deque()
        self._pools: dict[int, PinnedPool] = {}
        self._streams: dict[int, Any] = {}
        self._inherited: list[object] = []
        self._background = BackgroundThread()
        self._sending: Any = None
        self._pid = os.getpid()

    def forget(self) -> None:
        """Drop what is not read; a forked child must not free what is its parent's."""
        if self._pid != os.getpid():
            self._inherited += (self._buffers, self._alone, self._pools, self._streams)
            self._buffers, self._alone, self._pools, self._streams = {}, deque(), {}, {}
            self._background.forget()
            self._sending = None
            self._pid = os.getpid()
        for buffer in self._buffers.values():
            buffer.forget()

    def put(self, tensors: Sequence[Any], used: int) -> tuple[Batch, int]:
        """Copy tensors of one CUDA device, with so many elements, and return their batch and their place in it.

        Raises:
            BeingCapturedError: the copy would become part of a graph.
            BacklogError: all memory for values that are not read yet is in use.
            RuntimeError: torch cannot copy one of them, or the device has no memory.
        """
        torch = sys.modules["torch"]
        if torch.cuda.is_current_stream_capturing():
            raise BeingCapturedError
        device = tensors[0].device
        # The public call makes an object and hashes it, which is a third of what a record may cost.
        stream = torch._C._cuda_getCurrentStream(device.index)  # noqa: SLF001
        with torch.no_grad():
            if used <= SIZE // 2 and not _is_foreign(stream[0]):
                buffer = self._buffers.get(stream) or self._new(torch, device, stream)
                placed = buffer.put(tensors, used)
                if placed is not None:
                    return placed
            alone = Buffer(torch, _memory(torch, device, used), self._pool(device.index))
            placed = alone.send_alone(tensors, used)
            self._alone.append(alone)
            return placed

    def put_scalar(self, scalar: Any) -> tuple[Batch, int]:
        """Do what `put()` does of one scalar: the usual case, for which each microsecond counts."""
        torch = sys.modules["torch"]
        if scalar.dtype in _is_fused and not torch.cuda.is_current_stream_capturing():
            stream = torch._C._cuda_getCurrentStream(scalar.device.index)  # noqa: SLF001
            buffer = self._buffers.get(stream)
            if buffer is not None:
                placed = buffer.put_scalar(scalar.detach() if scalar.requires_grad else scalar)
                if placed is not None:
                    return placed
        return self.put((scalar,), 1)

    def _new(self, torch: Any, device: Any, stream: object) -> Buffer:
        with captures_left_alone():
            if hasattr(torch.Tag, "cudagraph_unsafe"):
                memory = _memory(torch, device, SIZE)
            else:
                memory = self._memory_of_no_graph(torch, device)
            return self._buffers.setdefault(stream, Buffer(torch, memory, self._pool(device.index)))

    def _memory_of_no_graph(self, torch: Any, device: Any) -> Any:
        """Return memory that was allocated on a stream of ours, for torch before 2.8.

        While its compiler warms a CUDA graph up, what is allocated on the current stream is the graph's. It has no way
        to leave a call out of the graph, and raises if any of that memory stays.
        """
        ours = self._streams.get(device.index)
        if ours is None:
            ours = self._streams.setdefault(device.index, torch.cuda.Stream(device))
        with torch.cuda.stream(ours):
            memory = _memory(torch, device, SIZE)
        torch.cuda.current_stream(device).wait_stream(ours)
        return memory

    def _pool(self, index: int) -> PinnedPool:
        return self._pools.get(index) or self._pools.setdefault(index, PinnedPool())

    def look(self, *, everything: bool = False) -> None:
        """Read what has arrived, and send what nobody else will; with `everything`, all. On a thread of ours."""
        for buffer in list(self._buffers.values()):
            self._look_at(buffer, everything=everything)
        for _ in range(len(self._alone)):
            buffer = self._alone.popleft()
            self._look_at(buffer, everything=False)
            if buffer.is_awaited:
                self._alone.append(buffer)

    def _look_at(self, buffer: Buffer, *, everything: bool) -> None:
        try:
            be_on(buffer.index)
            buffer.read_arrived()
            if buffer.is_waiting(everything=everything) and not buffer.is_captured():
                self._send(buffer)
        except Exception as error:  # noqa: BLE001 (a device that fails costs its values)
            buffer.give_up(error)

    def _send(self, buffer: Buffer) -> None:
        if buffer.is_idle():
            buffer.send_for_caller()
            buffer.read_arrived()
        elif self._sending is None or self._sending.done.wait(0):
            # Where the queue of the stream is full, a launch waits for the device: that, this thread must not.
            self._sending = self._background.begin(buffer.send_for_caller)


STAGING = Staging()


def launch_plainly(values: Sequence[Staged]) -> None:
    """Do what `launch()` does, whatever mode or transform of torch the program is in.

    Raises:
        Exception: as `launch()`.
        TypeError: a tensor stands for many values.
    """
    torch = sys.modules["torch"]
    with plain_torch_mode(torch):
        for value in values:
            value.tensor = untransformed(torch, value.tensor)
        launch(values)


def launch(values: Iterable[Staged]) -> None:
    """Copy values on their devices: one launch for each type of them, and a weight of several values once.

    Raises:
        Exception: as `Staging.put()`; then none of a device was.
    """
    by_tensor: dict[int, list[Staged]] = {}
    for value in values:
        by_tensor.setdefault(id(value.tensor), []).append(value)
    by_device: dict[int, list[list[Staged]]] = {}
    for same in by_tensor.values():
        by_device.setdefault(same[0].tensor.device.index, []).append(same)
    for those in by_device.values():
        batch, at = STAGING.put([same[0].tensor for same in those], sum([same[0].size for same in those]))
        for same in those:
            size = same[0].size
            for value in same:
                value.place(batch, at)
            at += size


def _memory(torch: Any, device: Any, size: int) -> Any:
    with plain_torch_mode(torch):
        return torch.empty(size, dtype=torch.float64, device=device)


def _is_foreign(stream_id: int) -> bool:
    """Whether a stream was not made by torch, so that it may be gone before its batch is sent."""
    return stream_id != 0 and not stream_id & 1


def _copy_all(torch: Any, places: Sequence[Any], tensors: Sequence[Any]) -> None:
    kinds = {tensor.dtype: None for tensor in tensors}
    for kind in kinds:
        if kind not in _is_fused:
            _check(kind)
    if len(kinds) == 1:
        _copy(torch, places, tensors)
        return
    for kind in kinds:
        chosen = [place for place, tensor in enumerate(tensors) if tensor.dtype is kind]
        _copy(torch, [places[place] for place in chosen], [tensors[place] for place in chosen])


def _copy(torch: Any, places: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Copy tensors of one type: one launch for about a hundred of them, where torch has a kernel for it."""
    if len(tensors) > 1 and _is_fused[tensors[0].dtype] and hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(places, tensors)
        return
    for place, tensor in zip(places, tensors, strict=True):
        place.copy_(tensor, non_blocking=True)


_FUSED = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Types that `_foreach_copy_` reads in one launch."""

_SINGLY = (
    "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip

_is_fused: dict[Any, bool] = {}
"""By type: whether it is one of `_FUSED`."""


def _check(kind: Any) -> bool:
    """Return whether many tensors of a type are copied at once.

    Raises:
        TypeError: its elements are no numbers: complex, quantized.
    """
    name = str(kind).removeprefix("torch.")
    if name not in _FUSED and name not in _SINGLY:
        raise TypeError(f"has elements of {kind}")
    found = _is_fused[kind] = name in _FUSED
    return found
