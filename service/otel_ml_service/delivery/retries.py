"""What fails is said, waited for, and tried again: how long it waits, and for what it is worth waiting."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass

from otel_ml_service.delivery.exporter_progress import Progress
from otel_ml_service.delivery.plugin_values import asked_pause
from otel_ml_service.delivery.stop_signal import StopSignal

__all__ = ["Backoff", "Retries", "RetryPolicy", "is_passing"]

_SHORT_OF = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
    }
)
"""What the operating system is short of, or cannot do now, whatever the record is."""


def is_passing(error: BaseException) -> bool:
    """Whether what an exporter let through has to do with the network, a disk or memory, and not with the records.

    Examples:
        >>> is_passing(TimeoutError()), is_passing(OSError(errno.EFBIG, "ulimit")), is_passing(ValueError("oops"))
        (True, True, False)
    """
    if isinstance(error, OSError) and error.errno in _SHORT_OF:
        return True
    return isinstance(error, (ConnectionError, TimeoutError, MemoryError))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with full jitter; a retryable failure is retried for ever.

    Attributes:
        initial_s: upper bound of the first pause.
        maximum_s: upper bound of every pause of our own; a backend may ask for longer.
        surprises: how often an exception that no exporter should raise is retried before its records count as refused.
    """

    initial_s: float = 0.5
    maximum_s: float = 60.0
    surprises: int = 3


class Backoff:
    """The pauses of one series of failures.

    Full jitter (a uniform draw below the bound): many exporters that failed together do not come back together.
    """

    def __init__(self, policy: RetryPolicy, source: random.Random | None = None) -> None:
        self._policy = policy
        self._random = source or random.Random()
        self._failures = 0

    def reset(self) -> None:
        """Begin anew after a success."""
        self._failures = 0

    def pause(self, retry_after: float = 0.0) -> float:
        """Return the seconds to wait; never less than the backend asked for."""
        # The exponent is bounded: after a night of failures 2**n would be too large for a float.
        bound = min(self._policy.maximum_s, self._policy.initial_s * 2 ** min(self._failures, 32))
        self._failures += 1
        return max(retry_after, self._random.uniform(0, bound))


class Retries:
    """Those of one exporter's thread."""

    def __init__(self, policy: RetryPolicy, progress: Progress, stop: StopSignal) -> None:
        self.policy = policy
        self._progress = progress
        self._stop = stop
        self._backoff = Backoff(policy)

    def wait_after(self, error: BaseException, *, state: str = "retrying", is_passing: bool = True) -> None:
        """Say that it failed, and wait before the next try: longer each time, and as long as the backend asks for.

        Raises:
            StoppedError: the deadline passed.
        """
        self._progress.failed(error, state=state, is_passing=is_passing)
        self.pause(asked_pause(error))

    def pause(self, asked: float = 0.0) -> None:
        """Wait before the next try, `asked` seconds at least.

        Raises:
            StoppedError: the deadline passed.
        """
        self._stop.pause(self._backoff.pause(asked), asked=asked)

    def succeeded(self) -> None:
        """Begin anew with the shortest pause."""
        self._backoff.reset()
        self._progress.recovered()
