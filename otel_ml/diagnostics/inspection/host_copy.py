"""A copy of a tensor in the host's memory, and a thread of our own that waits until it is there."""

from __future__ import annotations

import time
from typing import Any

from otel_ml._internal.devices.cuda_thread import CAPTURING, be_on, captures_left_alone

__all__ = ["copied", "wait_for"]


def copied(tensor: Any) -> tuple[Any, Any]:
    """Return a copy in the host's memory and the event of its arrival, None where it is there; nothing waits.

    Raises:
        RuntimeError: a CUDA graph is being captured, or there is no memory to pin.
    """
    if not tensor.is_cuda:
        # An update writes into the parameter in place: its memory does not hold these values for long.
        return tensor.detach().clone(), None
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(CAPTURING)
    with captures_left_alone():  # of other threads
        host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)  # else the copy would wait
    host.copy_(tensor.detach(), non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(tensor.device))
    return host, arrived


def wait_for(arrived: Any) -> None:
    """Wait, on a thread of our own, for an event, by asking: what waits in the driver is an error to some programs."""
    if arrived is None:
        return
    be_on(arrived.device.index)
    while not arrived.query():
        time.sleep(0.001)
