"""Prints lines whose values may still be on the device: then another thread waits for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["Console"]


class Console:
    """Prints in order.

    Args:
        write: prints a line.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._background: ThreadPoolExecutor | None = None

    def print(self, line: Callable[[], str], values: Iterable[Any]) -> None:
        """Print what `line` returns: at once, or, where one of `values` is on a device, once it is computed."""
        event = _event_after(values)
        if event is None and self._background is None:
            self._write(line())
            return
        if self._background is None:
            self._background = ThreadPoolExecutor(1, thread_name_prefix="otel_ml.compat.megatron")

        def later() -> None:
            if event is not None:
                event.synchronize()
            self._write(line())

        self._background.submit(later)


def _event_after(values: Iterable[Any]) -> Any | None:
    if not any(getattr(value, "is_cuda", False) for value in values):
        return None
    torch: Any = sys.modules["torch"]
    event = torch.cuda.Event()
    event.record()
    return event
