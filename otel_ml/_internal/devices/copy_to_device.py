"""What a program has on the host, brought to a device for a computation there."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.devices.cuda_thread import captures_left_alone

__all__ = ["copy_to_device"]


def copy_to_device(host: Any, like: Any) -> Any:
    """Return a tensor of the host where `like` is, copied on the current stream there; nobody waits for it.

    A copy to CUDA from memory that is not pinned waits for all that was launched before. What was pinned for it is
    used again when the stream has read it: torch sees to that.
    """
    if not like.is_cuda:
        return like.new_empty(host.shape, dtype=host.dtype).copy_(host)
    with captures_left_alone():
        pinned = host.pin_memory()
    return pinned.to(like.device, non_blocking=True)
