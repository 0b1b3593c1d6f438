"""Tensors that say they are on a device; their memory is of the host, and garbage once it is freed."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from tests.fake_cuda.active_card import active_card
from tests.fake_cuda.streams import FakeEvent, FakeStream

__all__ = ["GARBAGE", "CudaTensor", "Lease", "blank", "inner_of"]

GARBAGE = 0x5A
"""What memory holds that nobody has written yet, or somebody has freed."""


class Lease:
    """The use of a piece of device memory by the tensors that show it; freed with the last of them."""

    def __init__(self, card: Any, inner: torch.Tensor, stream: FakeStream) -> None:
        self.streams = {stream: None}
        size = -(-max(inner.untyped_storage().nbytes(), 1) // 512) * 512
        with card.lock:
            card.allocated += size
            card.allocated_on[stream] += size
            card.most_allocated = max(card.most_allocated, card.allocated)
        weakref.finalize(self, _freed, card, inner, stream, self.streams, size)


def _freed(card: Any, inner: torch.Tensor, stream: FakeStream, users: dict[FakeStream, None], size: int) -> None:
    with card.lock:
        card.allocated -= size
        card.allocated_on[stream] -= size
    for user in users:
        if user is not stream:  # `record_stream()`: used again when that one has come here
            event = FakeEvent()
            event.record(user)
            stream.wait_event(event)
    stream.queue(lambda: inner.untyped_storage().fill_(GARBAGE))


class CudaTensor(torch.Tensor):
    """A tensor that says it is on `cuda:N`; its memory is a tensor of the host, which nobody may look at.

    Attributes:
        inner: that tensor. A test may read it, when the streams have done what was launched.
    """

    inner: torch.Tensor
    lease: Lease

    @staticmethod
    def __new__(cls, inner: torch.Tensor, lease: Lease, device: torch.device, requires_grad: bool = False) -> Any:
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
        return active_card().dispatch(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        active_card().wait("tolist()")
        return self.inner.tolist()

    def record_stream(self, stream: FakeStream) -> None:
        self.lease.streams[stream] = None

    def set_(self, storage: Any, offset: int = 0, size: Any = ()) -> Any:  # type: ignore[override]
        """Return a tensor that shows a storage; the true `set_()` returns the tensor itself, which shows it now."""
        inner = torch.empty(0, dtype=self.dtype, device="cpu").set_(storage, offset, size)
        return active_card().wrap(inner, self.device)

    def __repr__(self, **_: object) -> str:  # type: ignore[override] # torch's would read it
        return f"CudaTensor({tuple(self.shape)}, {self.dtype}, {self.device})"


def inner_of(item: Any) -> Any:
    """Return the memory behind a tensor of a device; anything else as it is."""
    return item.inner if isinstance(item, CudaTensor) else item


def blank(item: Any) -> Any:
    """Return zeros in the form of a tensor; anything else as it is."""
    if not isinstance(item, torch.Tensor):
        return item
    return (
        torch.zeros(1, dtype=item.dtype).as_strided(item.shape, [0] * item.dim())
        if item.numel() == 0
        else (torch.empty_strided(item.shape, item.stride(), dtype=item.dtype).zero_())
    )
