"""Whether there is time for another iteration before the job's deadline."""

from __future__ import annotations

import math
import re
import sys
from contextlib import suppress
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

    Attributes:
        last_save_time: seconds from the start to the deadline; infinite for none.
        start_time: seconds of the monotonic clock, as `previous_iteration_time` is.
        last_saved: it has been said that it is time to save.
        iteration_times: seconds of each iteration.
        previous_iteration_time: when the last one ended; None before the first.
        fit_last_save_time: as given.

    Raises:
        ConfigError: `timeout` is written otherwise.
    """

    def __init__(self, timeout: str | None = "00:03:45:00", fit_last_save_time: bool = False) -> None:
        self.last_save_time: float = math.inf if timeout is None else convert_to_seconds(timeout)
        self.fit_last_save_time = fit_last_save_time
        self.start_time: float = monotonic()
        self.previous_iteration_time: float | None = None
        self.iteration_times: list[float] = []
        self.last_saved: bool = False

    def check_save(self) -> bool:
        """Return True at the first call after it is time to save, and False at all others."""
        _flush()
        if self.last_saved:
            return False
        passed_s = monotonic() - self.start_time
        if self.fit_last_save_time and self.iteration_times:
            passed_s += sum(self.iteration_times) / len(self.iteration_times)
        self.last_saved = passed_s >= self.last_save_time
        return self.last_saved

    def start_iterations(self) -> None:
        """The first iteration begins."""
        self.previous_iteration_time = monotonic()

    def mark_iteration(self) -> None:
        """An iteration ends, and the next begins; the first call counts as `start_iterations()` where that was not."""
        _flush()
        now_s = monotonic()
        if self.previous_iteration_time is not None:
            self.iteration_times.append(now_s - self.previous_iteration_time)
        self.previous_iteration_time = now_s


def _flush() -> None:
    """Let what was printed arrive: a job that is killed at its limit loses what is in the buffers."""
    for stream in (sys.stdout, sys.stderr):
        # None in a process without a console. Whoever read it may have gone, and the program may have closed it.
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
