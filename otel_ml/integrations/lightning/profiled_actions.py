"""What Lightning tells its profiler: when it fetches a batch, and when the hooks after a batch are done."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

__all__ = ["ProfiledActions"]

_FETCH = ".train_dataloader_next"
_MODULE, _AFTER_BATCH = "[LightningModule]", ".on_train_batch_end"


class ProfiledActions:
    """Listens to a trainer's profiler, which Lightning always has; that is told everything as before.

    Between two batches Lightning also runs callbacks, writes to loggers and lets ranks wait for each other: only its
    profiler knows what of that is fetching.

    Args:
        hooks_are_done: called when all callbacks, and the module, have had their `on_train_batch_end`.
    """

    def __init__(self, hooks_are_done: Callable[[], None]) -> None:
        self._hooks_are_done = hooks_are_done
        self._profiler: Any = None
        self._fetching_since: float | None = None
        self._fetched = 0.0

    def follow(self, profiler: Any) -> None:
        """Hear from now on what `profiler` is told."""
        if self._profiler is profiler:
            return
        self._profiler, start, stop = profiler, profiler.start, profiler.stop

        def started(action_name: str) -> None:
            start(action_name)
            if action_name.endswith(_FETCH):
                self._fetching_since = perf_counter()

        def stopped(action_name: str) -> None:
            self._stopped(action_name)
            stop(action_name)

        profiler.start, profiler.stop = started, stopped

    def fetched(self) -> float:
        """Return the seconds of fetching since this was asked last."""
        fetched, self._fetched = self._fetched, 0.0
        return fetched

    def _stopped(self, action_name: str) -> None:
        if action_name.endswith(_FETCH) and self._fetching_since is not None:
            self._fetched += perf_counter() - self._fetching_since
            self._fetching_since = None
        elif action_name.endswith(_AFTER_BATCH) and action_name.startswith(_MODULE):
            self._hooks_are_done()
