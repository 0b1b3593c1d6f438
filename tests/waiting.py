"""Wait for a state, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T], *, timeout: float = 20.0) -> T:
    """Return the first truthy result of `probe`; the last falsy one fails the test."""
    deadline = time.monotonic() + timeout
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"It did not come true within {timeout} s; last seen: {found!r}.")
        time.sleep(0.01)  # between two looks


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file that somebody writes meanwhile; of the last one only a part may be there yet."""
    return path.read_text().rpartition("\n")[0].splitlines()
