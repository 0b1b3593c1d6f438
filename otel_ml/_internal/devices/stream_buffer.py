"""The values of one CUDA stream: gathered on the device, copied to pinned memory a batch at a time (ADR 0039).

The buffer is filled, copied and filled again in the order of its stream, so it needs no events of its own. When the
step is over, or nobody has recorded for a while, it is copied to pinned memory, which is the batch: one copy and one
event.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any

from otel_ml._internal.devices.cuda_thread import be_on, captures_left_alone
from otel_ml._internal.devices.gather import copy_all
from otel_ml._internal.devices.pinned_memory import SIZE, Block, PinnedPool, prefixes
from otel_ml._internal.devices.plain_torch_mode import plain_torch_mode
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.steps.axis import Step

__all__ = ["BacklogError", "Batch", "StreamBuffer", "memory_of"]

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


class StreamBuffer:
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
        # `_lock` is for the batch that is being filled, `_reading` for those under way. Nobody waits for either.
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
        copy_all(self._torch, places, tensors)
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
            # The block is not used again: the device may still write to it.
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
            # On the stream of who fills it, so the copy comes behind what is gathered there.
            with cuda.stream(self._stream), self._torch.no_grad():
                if self._used and not cuda.is_current_stream_capturing():
                    self._send()
        finally:
            self._lock.release()

    def give_up(self, error: Exception) -> None:
        """Expect nothing anymore of a device that failed."""
        self._batch.error = error
        self.forget()


def memory_of(torch: Any, device: Any, size: int) -> Any:
    with plain_torch_mode(torch):
        return torch.empty(size, dtype=torch.float64, device=device)
