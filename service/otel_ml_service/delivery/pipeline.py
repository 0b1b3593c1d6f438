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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from otel_ml.explanation import explained
from otel_ml_exporters.errors import (
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
    StoreGoneError,
)
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunInfo, RunStatus, StepRecord
from otel_ml_service.delivery.backoff import Backoff, RetryPolicy, is_passing
from otel_ml_service.delivery.failure_message import problem_of, say_failure
from otel_ml_service.delivery.losses import Losses
from otel_ml_service.delivery.plugin_values import check_settings, position_of, shown
from otel_ml_service.delivery.refused_records import Refusal, Refused, export_all_but_refused
from otel_ml_service.delivery.self_telemetry_filter import Selection, everything

__all__ = ["Pipeline", "PipelineStatus", "RecordSource"]

_log = logging.getLogger(__name__)


class RecordSource(Protocol):
    """Where records come from, and where an exporter's position is kept."""

    @property
    def last_seq(self) -> int:
        """The newest record's `seq`."""

    @property
    def first_seq(self) -> int:
        """The oldest record's that is still there."""

    def read(self, after: int, limit: int) -> Sequence[Record]:
        """Return up to `limit` records with `seq > after`."""

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        """Call `listener` when there are new records, instead of the one that had this name before."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """What `otel-ml runs` shows of an exporter.

    Attributes:
        state: `starting`, `running`, `retrying`, `failed` (cannot start), `stopped`, `unavailable` (left out).
        delivered: `seq` up to which everything is in the backend, or counted as lost.
        lost: reason → values, and records without values, that the backend will never have.
        problem: the last failure, while it lasts.
    """

    state: str
    delivered: int
    lost: Mapping[str, int] = field(default_factory=dict)
    url: str | None = None
    problem: str | None = None


class _StoppedError(Exception):
    """The deadline of `stop` passed while waiting."""


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._make = make
        self._run = self._told = run.of_instance(name)
        self._source = source
        self._losses = Losses(lost or {})
        self._mark = mark
        self._say = say
        self._retry = retry
        self._select = select
        self._clock = clock
        self._backoff = Backoff(retry)
        self._wake = threading.Event()
        self._deadline: float | None = None
        self._last_status: RunStatus | None = None
        self._notice: str | None = None
        self._certain: int | None = None
        self._is_gone = False
        self._given_up: set[str] = set()
        self.status = PipelineStatus("starting", delivered, self._losses.counts)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._source.subscribe(self.name, self._wake.set)
        # One thread for each exporter: a backend that hangs delays its own records and nothing else.
        # What the caller logs on behalf of, the thread does too.
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._work,), name=f"otel-ml-{self.name}", daemon=True
        )
        self._thread.start()

    def describe(self, run: RunInfo) -> None:
        """Tell the exporter, on its own thread, which tags and notes the run has now; the same ones are no news."""
        if (run.tags, run.notes) != (self._run.tags, self._run.notes):
            self._run = run.of_instance(self.name)
            self._wake.set()

    @property
    def behind(self) -> int:
        """Records still to be delivered."""
        return max(0, self._source.last_seq - self.status.delivered)

    @property
    def is_stopped(self) -> bool:
        """Whether the exporter was shut down, or given up."""
        return self.status.state == "stopped"

    def ask_to_stop(self, timeout: float) -> None:
        """Deliver what is there and shut the exporter down, within `timeout` seconds; returns at once, safe twice."""
        if self._deadline is None or timeout < self._deadline - self._clock():
            self._deadline = self._clock() + timeout
            self._wake.set()

    def join(self) -> bool:
        """Wait for the deadline of `ask_to_stop`; return whether the exporter was shut down."""
        if self._thread is None:
            return True
        if self._deadline is not None:
            # The grace is for an exporter's own shutdown, which gets the time that is left but at least a little.
            self._thread.join(max(0.0, self._deadline - self._clock()) + _SHUTDOWN_GRACE_S)
        if self._thread.is_alive():
            sentence = f"Exporter {self.name} did not stop in time; {self.behind} records are left."
            _log.warning("%s", explained(sentence, "exporter-not-stopped"))
        return not self._thread.is_alive()

    # The thread

    def _work(self) -> None:
        try:
            # An exporter that lost what it was given is thrown away, not repaired: a new one reads `position()` from
            # the backend, which alone knows what it has, and goes on from there.
            while self._lives_again():
                self._pause(None)  # one whose backend ends at once is not started in a tight loop
        except _StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 (a defect; what is not delivered must not end without a word)
            self._failed(error, state="stopped")
        finally:
            self._set(state="stopped")

    def _lives_again(self) -> bool:
        """Deliver with one exporter until it is time to stop; True where another one has to take over."""
        exporter = self._start_exporter()
        ended = None
        try:
            self._resume(exporter)
            while self._step(exporter):
                pass
            self._flush(exporter)
            _look_after(exporter)
            ended = self._last_status
        except RestartExporterError as error:
            self._failed(error, state="retrying")
            self._go_back(is_gone=isinstance(error, StoreGoneError))
            return self._has_time()
        except _StoppedError:
            raise
        except BaseException as error:  # noqa: BLE001 (what else a plug-in raises, in `position` or a property: begin anew)
            self._failed(error, state="failed")
            self._go_back(is_gone=False)
            return self._has_time()
        finally:
            self._shut_down(exporter, ended)
        return False

    def _has_time(self) -> bool:
        return self._deadline is None or self._clock() < self._deadline

    def _start_exporter(self) -> Exporter:
        while True:
            try:
                exporter, run = self._make(), self._run
                exporter.start(run)
                check_settings(exporter)
                url = None if exporter.url is None else shown(exporter.url)
                self._note(exporter)
            except BaseException as error:  # noqa: BLE001 (any failure to start is retried; the others go on)
                state = "retrying" if isinstance(error, RetryableExportError) else "failed"
                self._failed(error, state=state)
                self._pause(getattr(error, "retry_after", None))
            else:
                self._told = run
                self._recovered()
                self._set(state="running", url=url)
                return exporter

    def _resume(self, exporter: Exporter) -> None:
        # The state of the run is the last record; an exporter that only has to end the run in its backend needs it,
        # too.
        newest = self._source.read(self._source.last_seq - 1, 1)
        if newest and isinstance(newest[-1], RunStatus):
            self._last_status = newest[-1]  # it may be that nothing is left to do but to end
        position = position_of(exporter)
        self._certain = position
        # The backend's word counts more than our mark: a mark is stored after the export, so it may be behind after a
        # kill, and ahead where the backend lost its end.
        if position is not None and not self._is_gone:
            self._set(delivered=min(position, self._source.last_seq))
        self._is_gone = False
        self._losses.take_back(self.status.delivered)
        self._set(lost=self._losses.counts)

    def _go_back(self, *, is_gone: bool) -> None:
        """Count on what the backend said it has: what it was given since may be gone with the exporter."""
        if is_gone:
            # Of all that follows the exporter leaves out what it still has.
            self._is_gone = True
            self._losses.forget()
            self._set(lost={})
            self._advance(0)
        elif self._certain is not None:
            self._advance(min(self._certain, self.status.delivered))

    def _step(self, exporter: Exporter) -> bool:
        """Deliver one batch, or wait for one; False when it is time to shut down."""
        # Cleared before reading: a record that is committed between the read and the wait sets it again, and none is
        # slept through.
        self._wake.clear()
        _look_after(exporter)
        self._describe(exporter)
        records = self._read(exporter)
        if self._wants_more(records, exporter):
            records = self._fill(records, exporter)
        if records:
            self._deliver(exporter, records)
            return self._has_time()
        if self._deadline is not None:
            return False
        self._wake.wait(_IDLE_S)
        return True

    def _describe(self, exporter: Exporter) -> None:
        """Tell what is new about the run, with retries; what the backend refuses is reported, and the records go on."""
        while self._told is not self._run:
            run = self._run
            try:
                exporter.describe(run)
            except RestartExporterError:
                raise
            except RetryableExportError as error:
                self._failed(error, state="retrying")
                self._pause(error.retry_after)
                continue
            except BaseException as error:  # noqa: BLE001 (tags must not hold the records up)
                reason = problem_of(error)
                _log.warning("Exporter %s did not take tags or notes: %s", self.name, reason)
                self._say("exporter-notice", f"Exporter {self.name!r} did not take tags or notes: {reason}")
            self._told = run
            self._recovered()

    def _wants_more(self, records: Sequence[Record], exporter: Exporter) -> bool:
        if not records or len(records) >= exporter.max_batch or _is_the_end(records[-1]):
            return False
        return exporter.max_delay > 0 and self._deadline is None

    def _fill(self, records: Sequence[Record], exporter: Exporter) -> Sequence[Record]:
        until = self._clock() + exporter.max_delay
        while self._wants_more(records, exporter):
            left = until - self._clock()
            if left <= 0:
                break
            self._wake.wait(left)
            self._wake.clear()
            records = self._read(exporter)
        return records

    def _read(self, exporter: Exporter) -> Sequence[Record]:
        while True:
            try:
                records = self._source.read(self.status.delivered, exporter.max_batch)
            except Exception as error:  # noqa: BLE001 (a disk that fails: said, and tried again)
                self._failed(error, state="retrying")
                self._pause(None)
            else:
                self._note_gap(records)
                return records

    def _note_gap(self, records: Sequence[Record]) -> None:
        """Count what was no longer kept when `records` were read; what has gone since then is in hand."""
        # Read after the records: the engine may delete old ones at any time, also between the two.
        first = self._source.first_seq
        if records:
            first = min(first, records[0].seq)
        gone = first - 1 - self.status.delivered
        if gone > 0 and self._source.last_seq:
            self._lose(first - 1, _NO_LONGER_KEPT, gone)
            self._say("disk-limit", f"Exporter {self.name!r} lost its place: {gone} records are no longer kept.")
            self._advance(first - 1)

    def _deliver(self, exporter: Exporter, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, RunStatus):
                self._last_status = record
        select = everything if exporter.keeps_self_telemetry else self._select
        thinned = (record for record in records if _is_wanted(record, exporter.every))
        wanted = [selected for record in thinned if (selected := select(record)) is not None]
        if wanted:
            # A batch of its own: the same exception in the next one is tried again, since it may have been the records.
            self._given_up.clear()
            for refused in export_all_but_refused(wanted, partial(self._export, exporter), self._advance):
                self._set_aside(refused)
        self._advance(records[-1].seq)

    def _export(self, exporter: Exporter, records: Sequence[Record], *, is_last_word: bool) -> Refusal | None:
        """Export with retries; return why the records will never be taken, or None."""
        surprises = 0
        while True:
            _look_after(exporter)  # also between two tries: without its folder it would fail for ever
            try:
                exporter.export([*records])  # its own list: it may sort or empty it
                if self._certain is None:
                    # It cannot tell how far it got: its mark must not be ahead of what survives a kill.
                    exporter.force_flush(_FLUSH_S)
            except RestartExporterError:
                raise
            except RetryableExportError as error:
                self._failed(error, state="retrying")
                self._pause(error.retry_after)
            except PermanentExportError as error:
                self._recovered()
                return Refusal(problem_of(error), error.names)
            except BaseException as error:  # noqa: BLE001 (a plug-in's defect: tried again, then records are lost)
                # A full disk or a lost connection is retried for ever. Anything else may be a record that a plug-in
                # cannot take: after some tries the batch is halved until the record is alone, and only that one is set
                # aside.
                surprises += 0 if is_passing(error) else 1
                reason = f"unexpected {type(error).__name__}: {shown(error)}"
                if surprises > (self._retry.surprises if is_last_word and reason not in self._given_up else 0):
                    self._give_up(reason, is_for_good=is_last_word)
                    return Refusal(reason)
                self._failed(error, state="retrying", is_passing=is_passing(error))
                self._pause(None)
            else:
                self._recovered()
                self._note(exporter)
                return None

    def _note(self, exporter: Exporter) -> None:
        """Say what the exporter wants a person to know, once."""
        notice = exporter.notice
        if notice is not None and (said := shown(notice)) != self._notice:
            self._notice = said
            self._say("exporter-notice", said)

    def _give_up(self, reason: str, *, is_for_good: bool) -> None:
        """Note that a batch raises the same again and again: each record of it is not tried as often once more."""
        if is_for_good and reason not in self._given_up:
            self._given_up.add(reason)
            _log.exception("Exporter %s raised something unexpected.", self.name)

    def _pause(self, retry_after: float | None) -> None:
        """Wait before the next try; being asked to stop makes that try come at once.

        Raises:
            _StoppedError: the deadline passed.
        """
        # Being asked to stop cuts one pause short, not all: a backend that is down would otherwise be tried in a tight
        # loop until the deadline.
        was_stopping = self._deadline is not None
        until = self._clock() + self._backoff.pause(retry_after)
        while self._clock() < until and (self._deadline is None or was_stopping):
            if self._deadline is not None and self._clock() >= self._deadline:
                raise _StoppedError
            self._wake.wait(max(0.0, min(until, self._deadline or until) - self._clock()))
            self._wake.clear()

    def _flush(self, exporter: Exporter) -> None:
        try:
            exporter.force_flush(self._left())
        except RestartExporterError:
            raise
        except BaseException as error:  # noqa: BLE001 (shutting down tries once more)
            self._failed(error, state="retrying")

    def _left(self) -> float:
        return max(_SHUTDOWN_GRACE_S, (self._deadline or 0.0) - self._clock())

    def _shut_down(self, exporter: Exporter, status: RunStatus | None) -> None:
        left = self._left()
        ended = status if status is not None and status.status != "running" else None
        try:
            exporter.force_flush(left)
            exporter.shutdown(left, ended)
        except BaseException as error:  # noqa: BLE001 (the last call; what it did not store is behind its position)
            self._failed(error, state="stopped")

    def _failed(self, error: BaseException, *, state: str, is_passing: bool = True) -> None:
        problem = problem_of(error)
        if self.status.problem != problem:
            _log.warning("Exporter %s: %s", self.name, problem, exc_info=_is_unforeseen(error))
            tries_left = None if is_passing else self._retry.surprises
            say_failure(self._say, self.name, error, state, tries_left=tries_left)
        self._set(state=state, problem=problem)

    def _recovered(self) -> None:
        self._backoff.reset()
        if self.status.problem is not None:
            self._set(state="running", problem=None)

    def _set_aside(self, refused: Refused) -> None:
        """Count what the backend will never take; it stays among the run's records."""
        is_new = refused.reason not in self._losses
        self._lose(refused.seq, refused.reason, refused.values)
        _log.error("Exporter %s does not take %s: %s", self.name, refused.what, refused.reason)
        if is_new:  # what follows for the same reason is counted, and in the log
            why = refused.reason.rstrip(".")
            self._say(
                "records-refused",
                f"Exporter {self.name!r} does not take {refused.what}: {why}. It is set aside and counted as lost; the "
                f"run keeps it: otel-ml replay {self._run.id} --to {self.name} --experiment NAME",
            )

    def _lose(self, seq: int, reason: str, count: int) -> None:
        self._losses.add(seq, reason, count)
        self._set(lost=self._losses.counts)

    def _advance(self, seq: int) -> None:
        self._set(delivered=seq)
        self._mark(seq, self._losses.counts)

    def _set(self, **changes: object) -> None:
        # One thread writes; readers get the old or the new frozen status.
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]  # the names are checked by replace


_FLUSH_S = 30.0
"""Seconds that an exporter gets to flush a batch, where it cannot tell how far its backend is."""

_NO_LONGER_KEPT = "its place was lost: the disk limit was reached"

_IDLE_S = 5.0
"""How long an idle exporter's thread sleeps; new records and `stop` wake it sooner."""

_SHUTDOWN_GRACE_S = 1.0
"""The least an exporter gets to close its files, also after the deadline."""


def _look_after(exporter: Exporter) -> None:
    """Notice that what was stored is gone.

    Raises:
        StoreGoneError: it has to be written again.
    """
    if not exporter.is_intact:
        raise StoreGoneError(f"What was written to {exporter.url} was deleted, moved or cut by another program.")


def _is_the_end(record: Record) -> bool:
    """Whether nothing comes after it, unless the run is opened again."""
    return isinstance(record, RunStatus) and record.status != "running"


def _is_wanted(record: Record, every: int) -> bool:
    return not isinstance(record, StepRecord) or every <= 1 or record.step % every == 0


def _is_unforeseen(error: BaseException) -> bool:
    return not isinstance(error, RetryableExportError)
