"""`DurationTracker`: how long something that happens often takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

__all__ = ["DurationTracker"]


class DurationTracker:
    """Collects durations until they are logged. Threads may share one.

    Args:
        name: of the metrics: `<name>/count`, `/min`, `/max`, `/mean`.

    Examples:
        >>> waits = DurationTracker("env/step")
        >>> waits.observe(0.5)
        >>> waits.observe(1.5)
        >>> waits.log()
        {'env/step/count': 2, 'env/step/min': 0.5, 'env/step/max': 1.5, 'env/step/mean': 1.0}
        >>> waits.log()
        {}
    """

    def __init__(self, name: str = "duration") -> None:
        self.name = name
        self._lock = threading.Lock()  # guards the swap
        self._seconds: list[float] = []

    def observe(self, duration: float) -> None:
        """Take a duration, in seconds."""
        with self._lock:
            self._seconds.append(duration)

    @contextmanager
    def track(self) -> Iterator[None]:
        """Take the duration of a block, also of one that raises."""
        begin = perf_counter()
        try:
            yield
        finally:
            self.observe(perf_counter() - begin)

    def log(self) -> dict[str, float]:
        """Return count, min, max and mean of what was taken since the last call; nothing where nothing was."""
        with self._lock:
            seconds, self._seconds = self._seconds, []
        if not seconds:
            return {}
        mean = sum(seconds) / len(seconds)
        named = {"count": len(seconds), "min": min(seconds), "max": max(seconds), "mean": mean}
        return {f"{self.name}/{key}": value for key, value in named.items()}
