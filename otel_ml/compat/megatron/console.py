"""Prints lines whose values may still be on the device: then another thread prints them, when they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from otel_ml._internal.devices.arrays import NotYetError, copied
from otel_ml.warn_once import say

__all__ = ["Console", "Line"]

Line = Callable[[Mapping[Hashable, Any]], str]
"""Makes a line of values, none of them on a device anymore."""

PAUSE_S = 0.005
"""Between two questions to a device that is behind."""

TIMEOUT_S = 60.0
"""For a line whose values the device does not give; the next ones, and the end of the program, wait for it."""


class Console:
    """Prints in order.

    Args:
        write: prints a line.
        timeout: seconds that a line waits for its values; without them it is left out.
    """

    def __init__(self, write: Callable[[str], object], timeout: float = TIMEOUT_S) -> None:
        self._write = write
        self._timeout = timeout
        self._background: ThreadPoolExecutor | None = None

    def print(self, line: Line, values: Mapping[Hashable, Any]) -> None:
        """Print `line(values)`: at once, or, where one of them is on a device, once it has come to the host."""
        try:
            # Copied now: the next iteration may write into the same tensors.
            coming = {name: copied(value) for name, value in values.items() if getattr(value, "is_cuda", False)}
        except Exception as error:  # noqa: BLE001 (a device in error, a captured graph: training will say it, or goes on)
            _say_left_out(error)
            return
        # Once one line has had to wait, all others go the same way, or they would overtake it.
        if not coming and self._background is None:
            self._print(line, values)
            return
        if self._background is None:
            # One thread: lines come in the order in which they were printed.
            self._background = ThreadPoolExecutor(1, thread_name_prefix="otel_ml.compat.megatron")
        self._background.submit(self._later, line, values, coming)

    def _later(self, line: Line, values: Mapping[Hashable, Any], coming: Mapping[Hashable, Callable[[], Any]]) -> None:
        until = time.monotonic() + self._timeout
        try:
            arrived = {name: _awaited(read, until) for name, read in coming.items()}
        except Exception as error:  # noqa: BLE001 (nobody else would hear of it)
            _say_left_out(error)
        else:
            self._print(line, {**values, **arrived})

    def _print(self, line: Line, values: Mapping[Hashable, Any]) -> None:
        try:
            self._write(line(values))
        except Exception as error:  # noqa: BLE001 (a loss of several elements, a stdout that is closed: training goes on)
            _say_left_out(error)


def _awaited(read: Callable[[], Any], until: float) -> float:
    """Return what a device gives; it is asked again and again, since a call that waits for it synchronizes."""
    while True:
        try:
            return float(read())
        except NotYetError:
            if time.monotonic() > until:
                raise TimeoutError("the device did not give its values") from None
            time.sleep(PAUSE_S)


def _say_left_out(error: Exception) -> None:
    say("compat-megatron", f"A line of the training log was not printed: {error}. The run has what the line says.")
