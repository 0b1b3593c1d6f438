"""What `otel-ml recover` says while a run takes its time: for what it waits, and how long at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Waits"]

_SLOW_S = 2.0
"""Seconds after which a person asks what takes so long, where nothing is wrong."""


class Waits:
    """Says once of each backend that it is waited for, at once where it fails.

    Args:
        timeout: seconds the run may take.
        show: prints a sentence.
        clock: seconds that only go forward.
    """

    def __init__(
        self, timeout: float, show: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show = show
        self._clock = clock
        self._began = clock()
        self._timeout = timeout
        self._said: set[tuple[str, bool]] = set()

    def look(self, account: Mapping[str, Any]) -> None:
        """Say what is new in the account of a run."""
        exporters: Mapping[str, Mapping[str, Any]] = account.get("exporters", {})
        behind = {name: found for name, found in exporters.items() if found["pending"]}
        for name, found in behind.items():
            self._wait_for(name, found["problem"] or "")
        if not behind and account.get("pending"):
            self._wait_for("its last steps", "")

    def _wait_for(self, what: str, problem: str) -> None:
        waited = self._clock() - self._began
        if (what, bool(problem)) in self._said or (not problem and waited < _SLOW_S):
            return
        self._said.add((what, bool(problem)))
        left = max(0.0, self._timeout - waited)
        self._show(f"waits for {what}, for at most {left:.0f} s{f': {problem}' if problem else ''}")
