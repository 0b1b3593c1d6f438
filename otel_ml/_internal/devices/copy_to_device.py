"""What a program has on the host, brought to a device for a computation there."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.devices.cuda_thread import CAPTURING, captures_left_alone

__all__ = ["copy_to_device"]


def copy_to_device(host: Any, like: Any) -> Any:
    """Return a tensor of the host where `like` is, copied on the current stream there; nobody waits for it.

    A copy to CUDA from memory that is not pinned waits for all that was launched before. It goes through pinned memory
    of its own, which is used again when the stream has read it: torch sees to that, and the program may change `host`.

    Raises:
        RuntimeError: a CUDA graph is being captured, whose replays would read that memory again; or none can be pinned.
    """
    if not like.is_cuda:
        return like.new_empty(host.shape, dtype=host.dtype).copy_(host)
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(CAPTURING)
    with captures_left_alone():  # of other threads
        pinned = torch.empty(host.shape, dtype=host.dtype, device="cpu", pin_memory=True)
    return pinned.copy_(host).to(like.device, non_blocking=True)
