"""What fails is said, waited for, and tried again."""

from __future__ import annotations

from otel_ml_exporters.errors import RetryableExportError
from otel_ml_service.delivery.backoff import Backoff, RetryPolicy
from otel_ml_service.delivery.exporter_progress import Progress
from otel_ml_service.delivery.plugin_values import asked_pause
from otel_ml_service.delivery.stop_signal import StopSignal

__all__ = ["Retries"]


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
        self.pause(asked_pause(error.retry_after) if isinstance(error, RetryableExportError) else 0.0)

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
