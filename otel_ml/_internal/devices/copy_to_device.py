"""What a program has on the host, brought to a device for a computation there."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.devices.cuda_thread import captures_left_alone

__all__ = ["copy_to_device"]


def copy_to_device(host: Any, device: Any) -> Any:
    """Return a tensor of the host on a device, on whose current stream it is copied; nobody waits for it.

    A copy to CUDA from memory that is not pinned waits for all that was launched before. What was pinned for it is
    used again when the stream has read it: torch sees to that.
    """
    if device.type != "cuda":
        return host.to(device)
    with captures_left_alone():
        pinned = host.pin_memory()
    return pinned.to(device, non_blocking=True)
