"""`DurationTracker`: how long something that happens often takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

__all__ = ["DurationTracker"]


class DurationTracker:
    """Collects durations until they are logged. Threads may share one.

    Args:
        name: what stands before the keys: `<name>/count`. None, as in ROLL, for bare keys.

    Examples:
        >>> waits = DurationTracker()
        >>> waits.observe(0.5)
        >>> waits.observe(1.5)
        >>> waits.log()
        {'count': 2, 'min': 0.5, 'max': 1.5, 'mean': 1.0}
        >>> waits.log()
        {'count': 0, 'min': 0.0, 'max': 0.0, 'mean': 0.0}
        >>> DurationTracker("env/step").log()
        {}
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._lock = threading.RLock()  # guards the swap; a signal handler may be timed, too
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
        """Return count, min, max and mean, in seconds, of what was taken since the last call.

        Where nothing was, bare keys are there all the same, with zeros, since ROLL's scheduler looks each of them up;
        of a name nothing is returned then, so that it is absent among the metrics.
        """
        with self._lock:
            seconds, self._seconds = self._seconds, []
        summary = _summary(seconds)
        if self.name is None:
            return summary
        return {f"{self.name}/{key}": value for key, value in summary.items()} if seconds else {}


def _summary(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"count": 0, "min": 0.0, "max": 0.0, "mean": 0.0}
    mean = sum(seconds) / len(seconds)
    return {"count": len(seconds), "min": min(seconds), "max": max(seconds), "mean": mean}
