"""NeMo RL's timers: durations by label, kept here, and recorded into the run where there is one."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, copy_context
from datetime import datetime, timezone
from typing import Any

import numpy as np

import otel_ml
from otel_ml.compat.tracking.run_of_the_job import has_run
from otel_ml.warn_once import say

__all__ = ["ThreadSafeTimer", "Timer"]

_LOGGER = logging.getLogger(__name__)

_REDUCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda samples: float(np.mean(samples)),
    "median": lambda samples: float(np.median(samples)),
    "min": lambda samples: float(np.min(samples)),  # NaN wherever among the samples one is
    "max": lambda samples: float(np.max(samples)),
    "std": lambda samples: float(np.std(samples)),  # of the population
    "sum": lambda samples: float(np.sum(samples)),
    "count": len,
}

Marker = tuple[float, dict[str, Any] | None]
"""Seconds since 1970, and what was given with it."""


def _timed(label: str) -> AbstractContextManager[Any]:
    return otel_ml.timed(label) if has_run() else nullcontext()


class _Running:
    """A measurement between `start()` and `stop()`; nothing nests under its span, which has a context of its own."""

    def __init__(self, label: str) -> None:
        # A timer's context variables are set and put back in the same context; start() and stop() may be called in
        # different threads or tasks.
        self._context: Context = copy_context()
        self._timed: AbstractContextManager[Any] = _timed(label)
        self._context.run(self._timed.__enter__)
        # Behind what otel_ml does at the beginning, and read first at the end: none of it is in the duration.
        self._begin_s = time.perf_counter()

    def stop(self) -> float:
        elapsed_s = time.perf_counter() - self._begin_s
        self._context.run(self._timed.__exit__, None, None, None)
        return elapsed_s


class Timer:
    """Measures durations under labels, and reduces them.

    Each one is also recorded as `time/<label>`, with a span, where a run is active or the environment tells of that of
    the job; a timer begins no other run.

    Args:
        context: what tells this timer apart in the debug lines, such as rank and worker; `hostname` is added.

    Examples:
        >>> timer = Timer()
        >>> with timer.time("generation"):
        ...     pass
        >>> timer.record("generation", 2.0)
        >>> timer.reduce("generation", "max"), timer.reduce("generation", "count")
        (2.0, 2)
    """

    def __init__(self, context: Mapping[str, object] | None = None) -> None:
        self._context: Mapping[str, object] = context or {}
        if "hostname" not in self._context:
            self._context = {**self._context, "hostname": socket.gethostname()}
        self._timers: dict[str, list[float]] = {}  # by NeMo RL's name: its drivers look whether a label is in it
        self._running: dict[str, _Running] = {}
        self._markers: dict[str, list[Marker]] = {}
        # Between finding a label's list and adding to it, another thread may take the list away.
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker may send to its driver: what was measured; what runs is of this process."""
        with self._lock:
            kept = {name: value for name, value in vars(self).items() if name != "_lock"}
            return {**kept, "_timers": {label: [*taken] for label, taken in self._timers.items()}, "_running": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.RLock()

    def start(self, label: str, should_log: bool = True) -> None:
        """Begin to measure.

        Raises:
            ValueError: `label` is being measured.
        """
        with self._lock:
            self._check_is_free(label)
            self._running[label] = _Running(label)
        self._debug(label, "start", should_log)

    def stop(self, label: str, should_log: bool = True) -> float:
        """Stop measuring; return the seconds since `start()`.

        Raises:
            ValueError: `label` is not being measured.
        """
        # Without the lock: of two threads that stop one label pop() gives it to one.
        running = self._running.pop(label, None)
        if running is None:
            raise ValueError(f"Timer {label!r} is not running: start() it first; running are {sorted(self._running)}")
        return self._ended(label, running.stop(), should_log)

    @contextmanager
    def time(self, label: str, should_log: bool = True) -> Iterator[None]:
        """Measure a `with` block, also where it raises; timers inside nest under its span, one of its own label, too.

        Raises:
            ValueError: `label` is being measured by `start()`.
        """
        # NeMo RL's time() calls start() and stop(), and a subclass that adds to them expects that.
        if self._is_extended:
            self.start(label, should_log)
            try:
                yield
            finally:
                self.stop(label, should_log)
            return
        self._check_is_free(label)
        self._debug(label, "start", should_log)
        # Not among `_running`: blocks of one label may be inside of each other, and in several threads at once.
        with _timed(label):
            begin_s = time.perf_counter()
            try:
                yield
            finally:
                self._ended(label, time.perf_counter() - begin_s, should_log)

    def record(self, label: str, elapsed: float, should_log: bool = True) -> None:
        """Add a duration in seconds that was measured elsewhere."""
        self._keep(label, elapsed)
        if has_run():
            # As timers are: the total of a rank, of the slowest rank.
            otel_ml.record(f"time/{label}", elapsed, within="sum", reduce="max")
        self._debug(label, f"record elapsed={elapsed:.4f}s", should_log)

    def mark(self, label: str, metadata: dict[str, Any] | None = None) -> float:
        """Note that something happens now; return the time, in seconds since 1970. An event of the run, too."""
        now_s = time.time()
        with self._lock:
            self._markers.setdefault(label, []).append((now_s, metadata))
        if has_run():
            otel_ml.event("timer.mark", {"label": label, **(metadata or {})})
        self._debug(label, f"mark meta={metadata}" if metadata else "mark", should_log=True)
        return now_s

    def get_markers(self, label: str | None = None) -> dict[str, list[Marker]]:
        """Return what was marked, by label: all, or what there is of one."""
        with self._lock:
            labels = list(self._markers) if label is None else [label]
            return {name: list(self._markers.get(name, ())) for name in labels}

    def get_elapsed(self, label: str) -> list[float]:
        """Return all durations of a label in seconds.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            if label not in self._timers:
                raise KeyError(f"nothing was measured as {label!r}; there are {sorted(self._timers)}")
            return list(self._timers[label])

    def get_latest_elapsed(self, label: str) -> float:
        """Return the newest duration of a label in seconds.

        Raises:
            KeyError: there is none.
        """
        return self.get_elapsed(label)[-1]

    def reduce(self, label: str, operation: str = "mean") -> float:
        """Return the durations of a label as one number: mean, median, min, max, std (population), sum, count.

        Raises:
            KeyError: there is no duration.
            ValueError: there is no such operation.
        """
        if operation not in _REDUCTIONS:
            raise ValueError(f"reduce(operation={operation!r}): expected one of {', '.join(_REDUCTIONS)}")
        return _REDUCTIONS[operation](self.get_elapsed(label))

    def get_timing_metrics(self, reduction_op: str | Mapping[str, str] = "mean") -> dict[str, float | list[float]]:
        """Return every label reduced: by one operation, or by that of the label; other labels as lists."""
        with self._lock:
            # Copies: reducing takes its time, and other threads go on measuring.
            measured = {label: list(samples) for label, samples in self._timers.items()}
        if isinstance(reduction_op, str):
            reduction_op = dict.fromkeys(measured, reduction_op)
        for unknown in sorted(set(reduction_op.values()) - set(_REDUCTIONS)):
            say(
                "bad-timer",
                f"get_timing_metrics({unknown!r}): expected one of {', '.join(_REDUCTIONS)}. "
                "Its durations are not reduced.",
            )
        reductions = {label: _REDUCTIONS.get(reduction_op.get(label, "")) for label in measured}
        return {
            label: samples if (reduction := reductions[label]) is None else reduction(samples)
            for label, samples in measured.items()
        }

    def drain(self, label: str) -> float:
        """Return the sum of a label's durations, 0 where there is none, and forget them."""
        with self._lock:
            return float(sum(self._timers.pop(label, ())))

    def reset(self, label: str | None = None) -> None:
        """Forget durations, measurements that run, and marks: all, or those of one label."""
        with self._lock:
            # What runs is dropped without its end, so the run has no time of it either.
            for kept in (self._timers, self._running, self._markers):
                if label is None:
                    kept.clear()
                else:
                    kept.pop(label, None)

    @property
    def _is_extended(self) -> bool:
        """Whether a subclass adds to `start()` or `stop()`, which NeMo RL's blocks call."""
        return (type(self).start, type(self).stop) != (Timer.start, Timer.stop)

    def _check_is_free(self, label: str) -> None:
        if label in self._running:
            raise ValueError(f"Timer {label!r} is running already: stop() it first, or choose another label")

    def _ended(self, label: str, elapsed_s: float, should_log: bool) -> float:
        self._keep(label, elapsed_s)
        self._debug(label, f"end elapsed={elapsed_s:.4f}s", should_log)
        return elapsed_s

    def _keep(self, label: str, elapsed_s: float) -> None:
        with self._lock:
            self._timers.setdefault(label, []).append(elapsed_s)

    def _debug(self, label: str, event: str, should_log: bool) -> None:
        if should_log and _LOGGER.isEnabledFor(logging.DEBUG):
            about = " ".join(f"{key}={value}" for key, value in self._context.items())
            stamp = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            _LOGGER.debug("[%s] %s %s ts=%s", about, label, event, stamp)


class ThreadSafeTimer(Timer):
    """A timer that threads share; blocks of one label may be measured by several of them at once.

    NeMo RL has a class of its own for it. Here every `Timer` is one.
    """
