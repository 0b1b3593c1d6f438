"""Whole tensors in files, written by a thread of their own."""

from __future__ import annotations

import atexit
import queue
import threading
from pathlib import Path
from typing import Any

from otel_ml.diagnostics.inspection.host_copy import wait_for
from otel_ml.diagnostics.inspection.writer_end import ended
from otel_ml.quantities import seconds
from otel_ml.warn_once import reporter

__all__ = ["Dump"]

_QUEUED = 64
"""Tensors that may wait for a slow disk: they are large, so more are left out and said."""


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
        # The thread is a daemon: without this the end of the process would cut it off.
        atexit.register(self.close)

    def save(self, layer: str, tensor: str, step: int, copies: list[tuple[Any, Any]]) -> None:
        """Save what the micro-batches of a step showed."""
        for index, (host, arrived) in enumerate(copies):
            # A layer's name is one folder; names of torch's modules have points between their parts.
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
        if not ended(self._thread, self._waiting, timeout):
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
            # `torch.save()` raises a RuntimeError where it cannot write, and so does a device in error.
            except (OSError, RuntimeError) as error:
                said = f"{path}, and maybe more, cannot be written: {error}. Training goes on without it."
                reporter.say("inspection-log", said, f"{self.folder}: {type(error).__name__}")
