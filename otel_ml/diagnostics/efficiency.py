"""Where the time goes: wall-clock buckets that add up to elapsed time, and thread-seconds that do not."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from otel_ml._internal.safe_repr import exact_text
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import reporter

__all__ = ["FRACTION", "Efficiency", "thread_seconds", "wall"]

FRACTION = Measure("efficiency/fraction", "1", ("mean",), "Productive time per elapsed time, of all ranks.")


@lru_cache(maxsize=1024)  # an equal one, made anew, would have to look for its metric in each step
def wall(bucket: str) -> Measure:
    """Return the measure of a wall-clock bucket; `productive` is what no bucket took."""
    bucket = exact_text(bucket)
    return Measure(f"efficiency/wall/{bucket}", "s", ("mean", "max"), f"Elapsed time of a rank in {bucket}.", "sum")


@lru_cache(maxsize=1024)
def thread_seconds(bucket: str) -> Measure:
    """Return the measure of a thread-seconds bucket."""
    bucket = exact_text(bucket)
    return Measure(f"efficiency/thread_seconds/{bucket}", "s", ("sum",), f"Time of all threads in {bucket}.")


_PRODUCTIVE = Measures(wall("productive"), FRACTION)


class Efficiency:
    """Two books that are never mixed.

    *Wall-clock* buckets belong to the thread that made this object. A bucket inside another takes its time from the
    outer one, so they and `productive` add up to the time between two calls of `step()`. *Thread-seconds* may be spent
    by many threads at once, and add up to more than elapsed time; no fraction is made of them.

    Args:
        clock: seconds; for tests.

    Examples:
        ```python
        efficiency = Efficiency()
        for batch in otel_ml.steps(loader):
            with efficiency.wall("refit"):
                push_weights()
            train(batch)
            efficiency.step()
        ```
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        # Time of two threads would overlap, and the buckets would no longer add up to elapsed time.
        self._owner = threading.get_ident()
        self._since = clock()
        self._open: list[str] = []
        self._entered = 0.0
        self._wall: dict[str, float] = defaultdict(float)

    @contextmanager
    def wall(self, bucket: str) -> Iterator[None]:
        """Charge elapsed time to `bucket`, a cause of waste such as `init`, `refit` or `validation`.

        In another thread than the object's it counts as thread-seconds, which otel_ml reports once.
        """
        if threading.get_ident() != self._owner:
            reporter.say(
                "efficiency-thread",
                f"efficiency/wall/{bucket} was entered in a thread that does not own it: its time would overlap. "
                "It counts as thread-seconds. Use thread_seconds() there.",
            )
            with self.thread_seconds(bucket):
                yield
            return
        self._charge()
        self._open.append(bucket)
        try:
            yield
        finally:
            self._charge()
            self._close(bucket)

    @contextmanager
    def thread_seconds(self, bucket: str) -> Iterator[None]:
        """Count the time of this thread in `bucket`, beside whatever else runs."""
        began = self._clock()
        try:
            yield
        finally:
            thread_seconds(bucket).record(self._clock() - began)

    @never_raises
    def step(self) -> None:
        """Record the buckets of the time since the last call; those that took none are absent."""
        self._charge()
        now = self._clock()
        elapsed, self._since = now - self._since, now
        taken, self._wall = self._wall, defaultdict(float)
        if elapsed <= 0:
            return
        productive = elapsed - sum(taken.values())
        for bucket, seconds in taken.items():
            wall(bucket).record(seconds)
        # Weighted by elapsed time, so that the mean over ranks and steps is productive time per elapsed time.
        _PRODUCTIVE.record(
            {"efficiency/wall/productive": productive}, several={FRACTION.name: (productive / elapsed, elapsed)}
        )

    def _close(self, bucket: str) -> None:
        """Leave the innermost block of this name: of tasks that take turns, another one may have entered last."""
        place = len(self._open) - 1 - self._open[::-1].index(bucket)
        del self._open[place]

    def _charge(self) -> None:
        """Give the time since the last look to the innermost bucket."""
        now = self._clock()
        if self._open:
            # What is in no bucket is charged to none: `step()` takes the rest for productive.
            self._wall[self._open[-1]] += now - self._entered
        # Also outside of any bucket: what comes next begins here.
        self._entered = now
