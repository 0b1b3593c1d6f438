"""One exporter's way out: its own thread, position, batches and retries.

::

    outbox ──read──▶ thin (every), select ──▶ batch (max_batch, max_delay) ──▶ export ──▶ mark
                                                    │ RetryableExportError: pause, the same batch again
                                                    │ RestartExporterError: a new exporter, from its own position
                                                    │ StoreGoneError: the same, from the beginning
                                                    │ PermanentExportError: halved; what is refused is set aside
                                                    └ anything else: tried a few times, then as the one before

Nothing here waits for another exporter, and nothing else waits for this one.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Mapping

from otel_ml.explanation import explained
from otel_ml_exporters.errors import RestartExporterError, RetryableExportError, StoreGoneError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import RunInfo, RunStatus
from otel_ml_service.delivery.batches import Batches, RecordSource
from otel_ml_service.delivery.export_with_retries import ExportWithRetries, require_intact
from otel_ml_service.delivery.exporter_progress import PipelineStatus, Progress
from otel_ml_service.delivery.plugin_values import check_settings, position_of, shown
from otel_ml_service.delivery.retries import Retries, RetryPolicy
from otel_ml_service.delivery.self_telemetry_filter import Selection, everything
from otel_ml_service.delivery.stop_signal import SHUTDOWN_GRACE_S, StoppedError, StopSignal

__all__ = ["Pipeline"]

_log = logging.getLogger(__name__)

_IDLE_S = 5.0
"""How long an idle exporter's thread sleeps; new records and `stop` wake it sooner."""


class Pipeline:
    """Delivers a run's records to one exporter.

    Args:
        name: as in the configuration, `mlflow/remote`.
        make: builds the exporter on the pipeline's thread.
        run: what the exporter is started for.
        source: the run's outbox.
        delivered: the position and losses kept from before.
        mark: called with (`seq`, lost) after each batch.
        say: called with a slug of the catalogue and a sentence for a person.
        select: what of a record an exporter gets that does not keep all of otel_ml's own account.
        seq_offset: called with the position that the backend tells; returns by how much its numbers are above the
            source's.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Exporter],
        run: RunInfo,
        source: RecordSource,
        *,
        delivered: int = 0,
        lost: Mapping[str, int] | None = None,
        mark: Callable[[int, Mapping[str, int]], None],
        say: Callable[[str, str], None],
        retry: RetryPolicy,
        select: Selection = everything,
        seq_offset: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.name = name
        self._make = make
        self._run = self._told = run.of_instance(name)
        self._source = source
        self._stop = StopSignal(time.monotonic)
        self._progress = Progress(
            name, run.id, delivered, lost or {}, mark=mark, say=say, surprises=retry.surprises, seq_offset=seq_offset
        )
        self._retries = Retries(retry, self._progress, self._stop)
        self._batches = Batches(name, source, self._progress, self._retries, self._stop, say)
        self._export = ExportWithRetries(name, select, self._progress, self._retries, say)
        self._last_status: RunStatus | None = None
        self._thread: threading.Thread | None = None
        self._is_starting = True

    def start(self) -> None:
        """Start the thread."""
        self._source.subscribe(self.name, self._stop.wake.set)
        # One thread for each exporter: a backend that hangs delays its own records and nothing else.
        # What the caller logs on behalf of, the thread does too.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._work,), name=f"otel-ml-{self.name}", daemon=True
        )
        self._thread.start()

    def describe(self, run: RunInfo) -> None:
        """Tell the exporter, on its own thread, name, tags and notes of the run; the same ones are no news."""
        if (run.name, run.tags, run.notes) != (self._run.name, self._run.tags, self._run.notes):
            self._run = run.of_instance(self.name)
            self._stop.wake.set()

    @property
    def status(self) -> PipelineStatus:
        """How far the exporter is."""
        return self._progress.status

    @property
    def behind(self) -> int:
        """Records still to be delivered."""
        return max(0, self._source.last_seq - self.status.delivered)

    @property
    def is_stopped(self) -> bool:
        """Whether the exporter was shut down, or given up."""
        return self.status.state == "stopped"

    @property
    def is_starting(self) -> bool:
        """Whether its backend is being opened, for the first time or again: that takes as long as it takes.

        A state would not do: each try of a backend that is away would look like progress.
        """
        return self._is_starting

    def hurry(self) -> None:
        """Try a backend that is away again now, and then often for a while: the run has ended."""
        self._stop.hurry()

    def ask_to_stop(self, timeout: float) -> None:
        """Deliver what is there and shut the exporter down, within `timeout` seconds; returns at once, safe twice."""
        self._stop.stop_within(timeout)

    def join(self) -> bool:
        """Wait for the deadline of `ask_to_stop`; return whether the exporter was shut down."""
        if self._thread is None:
            return True
        if (deadline := self._stop.deadline) is not None:
            # The grace is for an exporter's own shutdown, which gets the time that is left but at least a little.
            self._thread.join(max(0.0, deadline - self._stop.clock()) + SHUTDOWN_GRACE_S)
        if self._thread.is_alive():
            sentence = f"Exporter {self.name} did not stop in time; {self.behind} records are left."
            _log.warning("%s", explained(sentence, "exporter-not-stopped"))
        return not self._thread.is_alive()

    # The thread

    def _work(self) -> None:
        try:
            # An exporter that lost what it was given is thrown away, not repaired: a new one reads `position()` from
            # the backend, which alone knows what it has, and goes on from there.
            while self._needs_another():
                self._retries.pause()  # one whose backend ends at once is not started in a tight loop
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 (a defect; what is not delivered must not end without a word)
            self._progress.failed(error, state="stopped")
        finally:
            self._is_starting = False
            self._progress.change(state="stopped")

    def _needs_another(self) -> bool:
        """Deliver with one exporter until it is time to stop; True where another one has to take over."""
        exporter = self._start_exporter()
        ended, is_flushed = None, True
        try:
            self._resume(exporter)
            while self._step(exporter):
                pass
            is_flushed = self._is_flushed(exporter)
            require_intact(exporter)
            # Only here: a backend is told that the run has ended once it has all of it. The deadline may have come
            # between two batches, with the end of the run known from the start.
            ended = self._last_status if not self.behind else None
        except RestartExporterError as error:
            self._progress.failed(error, state="retrying")
            self._progress.go_back(is_gone=isinstance(error, StoreGoneError))
            return self._stop.has_time()
        except StoppedError:
            raise
        except BaseException as error:  # noqa: BLE001 (what else a plug-in raises, in `position` or a property: begin anew)
            self._progress.failed(error, state="failed")
            self._progress.go_back(is_gone=False)
            return self._stop.has_time()
        finally:
            self._shut_down(exporter, ended, is_flushed=is_flushed)
        return False

    def _start_exporter(self) -> Exporter:
        while True:
            self._is_starting = True
            try:
                exporter, run, url = self._opened()
            except BaseException as error:  # noqa: BLE001 (any failure to start is retried; the others go on)
                self._is_starting = False
                state = "retrying" if isinstance(error, RetryableExportError) else "failed"
                self._retries.wait_after(error, state=state)
            else:
                self._told = run
                self._retries.succeeded()
                self._progress.change(state="running", url=url)
                self._is_starting = False
                return exporter

    def _opened(self) -> tuple[Exporter, RunInfo, str | None]:
        """Return a new exporter, the facts with which it was started, and its address."""
        # The facts are read once it is made: an import of a library takes seconds, in which the job may say more.
        exporter, run = self._make(), self._run
        try:
            exporter.start(run)
            check_settings(exporter)
            url = None if exporter.url is None else shown(exporter.url)
            self._export.note(exporter)
        except BaseException:
            self._let_go(exporter)
            raise
        return exporter, run, url

    def _let_go(self, exporter: Exporter) -> None:
        """Close what was given nothing: the files it has opened, and perhaps locked, the next one needs.

        One that failed half-way through its start has opened some, too: a night of tries would use up all there are.
        """
        try:
            exporter.shutdown(self._stop.left(), None)
        except BaseException as error:  # noqa: BLE001 (why it could not be used is said instead)
            _log.debug("Exporter %s cannot be closed: %s", self.name, shown(error))

    def _resume(self, exporter: Exporter) -> None:
        # The state of the run is the last record; an exporter that only has to end the run in its backend needs it,
        # too.
        newest = self._source.read(self._source.last_seq - 1, 1)
        if newest and isinstance(newest[-1], RunStatus):
            self._last_status = newest[-1]  # it may be that nothing is left to do but to end
        self._progress.resume(position_of(exporter), self._source.last_seq)

    def _step(self, exporter: Exporter) -> bool:
        """Deliver one batch, or wait for one; False when it is time to shut down."""
        # Cleared before reading: a record that is committed between the read and the wait sets it again, and none is
        # slept through.
        self._stop.wake.clear()
        require_intact(exporter)
        self._tell_news(exporter)
        records = self._batches.next(exporter)
        if records:
            for record in records:
                if isinstance(record, RunStatus):
                    self._last_status = record
            self._export.deliver(exporter, records)
            return self._stop.has_time()
        if self._stop.is_stopping:
            return False
        self._stop.wake.wait(_IDLE_S)
        return True

    def _tell_news(self, exporter: Exporter) -> None:
        # By identity: another thread may put a newer one there while the exporter is told of this one.
        while self._told is not self._run:
            run = self._run
            if self._export.describe(exporter, run):
                self._told = run

    def _is_flushed(self, exporter: Exporter) -> bool:
        try:
            exporter.force_flush(self._stop.left())
        except RestartExporterError:
            raise
        except BaseException as error:  # noqa: BLE001 (shutting down tries once more)
            self._progress.failed(error, state="retrying")
            return False
        return True

    def _shut_down(self, exporter: Exporter, status: RunStatus | None, *, is_flushed: bool) -> None:
        left = self._stop.left()
        ended = status if status is not None and status.status != "running" else None
        try:
            exporter.force_flush(left)
        except BaseException as error:  # noqa: BLE001 (it is closed all the same: another one may open its files)
            self._progress.failed(error, state="stopped")
            ended = None  # with something lacking, its backend is not told that the run has ended
        else:
            if not is_flushed:  # it is by now: what the first try failed with is over, too
                self._progress.recovered()
        try:
            exporter.shutdown(left, ended)
        except BaseException as error:  # noqa: BLE001 (the last call; what it did not store is behind its position)
            self._progress.failed(error, state="stopped")
