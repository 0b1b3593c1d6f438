"""Whether there is time for another iteration before the job's deadline."""

from __future__ import annotations

import re
import sys
from time import monotonic

from otel_ml.exceptions import ConfigError

__all__ = ["TimeoutChecker", "convert_to_seconds"]

_TIME = re.compile(r"(\d+):(\d+):(\d+):(\d+)")


def convert_to_seconds(time_string: str) -> int:
    """Return `DD:HH:MM:SS` in seconds.

    Raises:
        ConfigError: it is written otherwise.

    Examples:
        >>> convert_to_seconds("00:03:45:00")
        13500
    """
    match = _TIME.fullmatch(str(time_string).strip())
    if match is None:
        raise ConfigError(f"timeout: expected DD:HH:MM:SS such as '00:03:45:00', got {time_string!r}.")
    days, hours, minutes, seconds = map(int, match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class TimeoutChecker:
    """Says once that it is time to save.

    Args:
        timeout: `DD:HH:MM:SS` from now to the deadline; None for none.
        fit_last_save_time: be done before the deadline: count a mean iteration as gone already.

    Raises:
        ConfigError: `timeout` is written otherwise.
    """

    def __init__(self, timeout: str | None = "00:03:45:00", fit_last_save_time: bool = False) -> None:
        self._limit_s = None if timeout is None else convert_to_seconds(timeout)
        self._fits_iteration = fit_last_save_time
        self._begin_s = monotonic()
        self._previous_s: float | None = None
        self._iterations = 0
        self._iterations_s = 0.0
        self._is_saved = False

    def check_save(self) -> bool:
        """Return True at the first call after it is time to save, and False at all others."""
        _flush()
        if self._limit_s is None or self._is_saved:
            return False
        passed_s = monotonic() - self._begin_s
        if self._fits_iteration and self._iterations:
            passed_s += self._iterations_s / self._iterations
        self._is_saved = passed_s >= self._limit_s
        return self._is_saved

    def start_iterations(self) -> None:
        """The first iteration begins."""
        self._previous_s = monotonic()

    def mark_iteration(self) -> None:
        """An iteration ends, and the next begins; the first call counts as `start_iterations()` where that was not."""
        _flush()
        now_s = monotonic()
        if self._previous_s is not None:
            self._iterations += 1
            self._iterations_s += now_s - self._previous_s
        self._previous_s = now_s


def _flush() -> None:
    """Let what was printed arrive: a job that is killed at its limit loses what is in the buffers."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
