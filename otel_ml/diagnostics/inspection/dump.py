"""Whole tensors in files, written by a thread of their own."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from otel_ml._internal.devices.cuda_thread import CAPTURING, be_on, captures_left_alone
from otel_ml.quantities import seconds
from otel_ml.warn_once import reporter

__all__ = ["Dump", "copied", "wait_for"]

_QUEUED = 64
"""Tensors that may wait for a slow disk: they are large, so more are left out and said."""


def copied(tensor: Any) -> tuple[Any, Any]:
    """Return a copy in the host's memory and the event of its arrival, None where it is there; nothing waits.

    Raises:
        RuntimeError: a CUDA graph is being captured, or there is no memory to pin.
    """
    if not tensor.is_cuda:
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


class Dump:
    """Saves tensors as `<folder>/rank-<rank>/<layer>/<tensor>-<step>-<micro-batch>.pt`, for `torch.load()`.

    Args:
        folder: made where it is not there.
        rank: in the path.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder: Path = folder / f"rank-{rank}"
        self._waiting: queue.Queue[tuple[Path, Any, Any] | None] = queue.Queue(_QUEUED)
        self._thread = threading.Thread(target=self._write, name="otel_ml-dump", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def save(self, layer: str, tensor: str, step: int, copies: list[tuple[Any, Any]]) -> None:
        """Save what the micro-batches of a step showed."""
        for index, (host, arrived) in enumerate(copies):
            path = self.folder / layer.replace("/", "_") / f"{tensor}-{step:06d}-{index}.pt"
            try:
                self._waiting.put_nowait((path, host, arrived))
            except queue.Full:
                reporter.say(
                    "inspection-log",
                    f"{self.folder}: tensors come faster than the disk takes them, and some are left out. "
                    "Use a larger freq.",
                )

    def close(self, timeout: float = 30.0) -> None:
        """Write what waits, within `timeout` seconds."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            with suppress(queue.Full):  # a disk that hangs
                self._waiting.put(None, timeout=timeout)
            self._thread.join(timeout)
        if self._thread.is_alive():
            reporter.say(
                "inspection-log",
                f"{self.folder} is not written to its end after {seconds(timeout)} of waiting for the device or the "
                "disk: its last tensors may be missing.",
            )

    def _write(self) -> None:
        import torch

        while (item := self._waiting.get()) is not None:
            path, host, arrived = item
            try:
                wait_for(arrived)
                path.parent.mkdir(parents=True, exist_ok=True)
                torch.save(host, path)
            except (OSError, RuntimeError) as error:
                said = f"{path}, and maybe more, cannot be written: {error}. Training goes on without it."
                reporter.say("inspection-log", said, f"{self.folder}: {type(error).__name__}")
