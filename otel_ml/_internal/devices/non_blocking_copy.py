"""Numbers on a CUDA device, brought to the host a batch at a time, without anybody waiting (ADR 0039).

At the call a value is copied, on the caller's stream and as float64, to its place in a buffer of that stream: that is
what it held at the call, whatever becomes of the tensor. All values of one call are one launch for each type
(`gather.py`). The buffer goes to pinned memory, a copy and an event a batch (`stream_buffer.py`). The background thread
asks the event, and reads memory of the host.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from otel_ml._internal.device_tensor import BeingCapturedError, Deferred
from otel_ml._internal.devices.cuda_thread import be_on, captures_left_alone
from otel_ml._internal.devices.gather import is_fused
from otel_ml._internal.devices.pinned_memory import SIZE, PinnedPool
from otel_ml._internal.devices.plain_torch_mode import plain_torch_mode, untransformed
from otel_ml._internal.devices.stream_buffer import Batch, StreamBuffer, memory_of
from otel_ml._internal.series.row import Row
from otel_ml._internal.single_thread_executor import SingleThreadExecutor
from otel_ml._internal.steps.axis import Step

__all__ = ["STAGING", "Staged", "StagedRow", "launch", "launch_plainly"]


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
        # A tensor that was copied is let go, which tells that it was.
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


class Staging:
    """The buffers of this process, one of each stream that something was recorded on."""

    def __init__(self) -> None:
        self._buffers: dict[object, StreamBuffer] = {}
        self._alone: deque[StreamBuffer] = deque()
        self._pools: dict[int, PinnedPool] = {}
        self._streams: dict[int, Any] = {}
        self._inherited: list[object] = []
        self._background = SingleThreadExecutor()
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
        # In the process that goes on: the memory is used for the next run. A child has no buffers here.
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
            # A longer vector would often find no place, and have the buffer sent half empty.
            if used <= SIZE // 2 and not _is_external(stream[0]):
                buffer = self._buffers.get(stream) or self._new(torch, device, stream)
                placed = buffer.put(tensors, used)
                if placed is not None:
                    return placed
            alone = StreamBuffer(torch, memory_of(torch, device, used), self._pool(device.index))
            placed = alone.send_alone(tensors, used)
            self._alone.append(alone)
            return placed

    def put_scalar(self, scalar: Any) -> tuple[Batch, int]:
        """Do what `put()` does of one scalar: the usual case, for which each microsecond counts."""
        torch = sys.modules["torch"]
        # In there are types that `copy_all()` has found to be numbers; it looks at others, and may refuse them.
        if scalar.dtype in is_fused and not torch.cuda.is_current_stream_capturing():
            stream = torch._C._cuda_getCurrentStream(scalar.device.index)  # noqa: SLF001
            buffer = self._buffers.get(stream)
            if buffer is not None:
                placed = buffer.put_scalar(scalar.detach() if scalar.requires_grad else scalar)
                if placed is not None:
                    return placed
        return self.put((scalar,), 1)

    def _new(self, torch: Any, device: Any, stream: object) -> StreamBuffer:
        with captures_left_alone():
            if hasattr(torch.Tag, "cudagraph_unsafe"):
                memory = memory_of(torch, device, SIZE)
            else:
                memory = self._memory_of_no_graph(torch, device)
            return self._buffers.setdefault(stream, StreamBuffer(torch, memory, self._pool(device.index)))

    def _memory_of_no_graph(self, torch: Any, device: Any) -> Any:
        """Return memory that was allocated on a stream of ours, for torch before 2.8.

        While its compiler warms a CUDA graph up, what is allocated on the current stream is the graph's. It has no way
        to leave a call out of the graph, and raises if any of that memory stays.
        """
        ours = self._streams.get(device.index)
        if ours is None:
            ours = self._streams.setdefault(device.index, torch.cuda.Stream(device))
        with torch.cuda.stream(ours):
            memory = memory_of(torch, device, SIZE)
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

    def _look_at(self, buffer: StreamBuffer, *, everything: bool) -> None:
        try:
            be_on(buffer.index)
            buffer.read_arrived()
            if buffer.is_waiting(everything=everything) and not buffer.is_captured():
                self._send(buffer)
        except Exception as error:  # noqa: BLE001 (a device that fails costs its values)
            buffer.give_up(error)

    def _send(self, buffer: StreamBuffer) -> None:
        if buffer.is_idle():
            buffer.send_for_caller()
            buffer.read_arrived()
        # One at a time: while that thread is held up by one stream, values of other busy streams wait, too.
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
        # By identity: each value holds its tensor meanwhile, so no number is given twice.
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


def _is_external(stream_id: int) -> bool:
    """Whether a stream was not made by torch, so that it may be gone before its batch is sent."""
    # torch marks ids of its own streams by the last bit; that of another one is its address, which is even.
    return stream_id != 0 and not stream_id & 1
