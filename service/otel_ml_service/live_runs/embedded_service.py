"""The life of a service that a job started for itself: its processes are told where it is, and it ends with the run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from otel_ml.wire.rendezvous import Rendezvous, Service
from otel_ml_service.live_runs.leftover_spools import Left, LeftoverSpools
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.receiver.admission import Admission

__all__ = ["EmbeddedService"]

_LINGER_S = 2.0
"""How long it stays after the end: the last writer still reads its account."""

_NOBODY_S = 120.0
"""How long it waits for the first request, or for an exporter that makes no progress."""


class EmbeddedService:
    """Announces the service, takes in what dead processes of the job left, and tells when there is nothing left to do.

    Args:
        rendezvous: where the processes of the job look for their service.
        runs: of the service.
        admission: takes what was left in spools.
        over: called when the run is over, or when nothing moves anymore; on a thread of its own.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        runs: RunRegistry,
        admission: Admission,
        *,
        over: Callable[[], None],
    ) -> None:
        self._rendezvous = rendezvous
        self._runs = runs
        self._admission = admission
        self._over = over
        # Guards both: what the dead left may be taken in just when the service ends.
        self._lock = threading.Lock()
        self._withdrawn = threading.Event()
        self._announced: int | None = None
        self._spools: LeftoverSpools | None = None

    @property
    def spools_taken_in(self) -> int:
        """How many spools of dead processes it has taken in."""
        return 0 if self._spools is None else self._spools.taken

    def announce(self, service: Service) -> None:
        """Let the processes of the job find `service`, once what the dead ones had left is taken in."""
        self._rendezvous.create()

        def publish() -> None:
            with self._lock:
                if not self._withdrawn.is_set():
                    self._announced = self._rendezvous.publish(service)

        self._spools = LeftoverSpools(self._rendezvous.spool, self._admission.future, taken_in=publish)
        self._spools.start()
        threading.Thread(target=self._watch_the_end, name="otel-ml-end", daemon=True).start()

    def left(self, instance: str) -> Left:
        """Return what a dead writer has left that is still to be taken in."""
        return "nothing" if self._spools is None else self._spools.left(instance)

    def withdraw(self) -> None:
        """Be found no more: who comes now starts a new service instead of losing time with one that stops."""
        with self._lock:
            self._withdrawn.set()
            self._rendezvous.withdraw(self._announced)
        if self._spools is not None:
            self._spools.stop()

    def leave(self) -> None:
        """Remove the folder, as far as nobody needs it anymore; after everything is delivered and closed."""
        # The handle of the announcement holds its lock for as long as the service can be found.
        if self._announced is not None:
            os.close(self._announced)
            self._announced = None
        self._rendezvous.remove()

    def _watch_the_end(self) -> None:
        # Not the time of day: set back, that would keep the service for as long.
        moved_at, last_seen = time.monotonic(), None
        while not self._withdrawn.wait(_LINGER_S / 4):
            runs = list(self._runs)
            seen = [(run.status, *(pipeline.status for pipeline in run.pipelines.started.values())) for run in runs]
            if seen != last_seen or self._admission.held:
                moved_at, last_seen = time.monotonic(), seen
            still_s = time.monotonic() - moved_at
            # `announce` is called with the run open: where there is none, it has been over for a while, and is closed.
            is_over = all(run.is_over and run.outbox.last_seq for run in runs)
            waits_for_writers = any(run.status.state == "running" and run.status.writers for run in runs)
            if still_s >= (_LINGER_S if is_over else _NOBODY_S) and not waits_for_writers:
                self._over()
                return
