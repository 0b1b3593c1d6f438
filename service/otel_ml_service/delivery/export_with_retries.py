"""A batch is handed to an exporter until it takes it; what it refuses for good is set aside, and the rest goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from otel_ml_exporters.errors import (
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
    StoreGoneError,
)
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunInfo, StepRecord
from otel_ml_service.delivery.exporter_progress import Progress
from otel_ml_service.delivery.failure_message import problem_of
from otel_ml_service.delivery.plugin_values import refused_names, shown
from otel_ml_service.delivery.refused_records import Refusal, export_all_but_refused
from otel_ml_service.delivery.retries import Retries, is_passing
from otel_ml_service.delivery.self_telemetry_filter import Selection, everything

__all__ = ["ExportWithRetries", "require_intact"]

_log = logging.getLogger(__name__)

_FLUSH_S = 30.0
"""Seconds that an exporter gets to flush a batch, where it cannot tell how far its backend is."""


class ExportWithRetries:
    """What one exporter after the other is given.

    Args:
        name: of the exporter.
        select: what of a record an exporter gets that does not keep all of otel_ml's own account.
        say: called with a slug of the catalogue and a sentence for a person.
    """

    def __init__(
        self,
        name: str,
        select: Selection,
        progress: Progress,
        retries: Retries,
        say: Callable[[str, str], None],
    ) -> None:
        self._name = name
        self._select = select
        self._progress = progress
        self._retries = retries
        self._say = say
        self._notice: str | None = None
        self._is_mute = False
        self._given_up: set[str] = set()

    def describe(self, exporter: Exporter, run: RunInfo) -> bool:
        """Tell what is new about the run; return whether that is done. What is refused is said, and records go on."""
        try:
            exporter.describe(run)
        except RestartExporterError:
            raise
        except RetryableExportError as error:
            self._retries.wait_after(error)
            return False
        except BaseException as error:  # noqa: BLE001 (tags must not hold the records up)
            reason = problem_of(error)
            _log.warning("Exporter %s did not take tags or notes: %s", self._name, reason)
            self._say("exporter-notice", f"Exporter {self._name!r} did not take tags or notes: {reason}")
        self._retries.succeeded()
        return True

    def note(self, exporter: Exporter) -> None:
        """Say what the exporter wants a person to know, once."""
        notice = exporter.notice
        if notice is not None and (said := shown(notice)) != self._notice:
            self._notice = said
            self._say("exporter-notice", said)

    def deliver(self, exporter: Exporter, records: Sequence[Record]) -> None:
        """Have the exporter store of `records` what it wants, and all of it that its backend takes.

        Raises:
            RestartExporterError: another exporter has to take over.
            StoppedError: the deadline passed.
        """
        select = everything if exporter.keeps_self_telemetry else self._select
        chosen = _every_nth(records, exporter.every)
        wanted = [selected for record in chosen if (selected := select(record)) is not None]
        if wanted:
            # A batch of its own: the same exception in the next one is tried again, since it may have been the records.
            self._given_up.clear()
            for refused in export_all_but_refused(wanted, partial(self._export, exporter), self._progress.advance):
                self._progress.quarantine(refused)
        # Also over what was thinned out or not selected: else an exporter of every 100th step would lag for ever.
        self._progress.advance(records[-1].seq)

    def _export(self, exporter: Exporter, records: Sequence[Record], *, is_last_word: bool) -> Refusal | None:
        """Export with retries; return why the records will never be taken, or None."""
        surprises = 0
        while True:
            require_intact(exporter)  # also between two tries: without its folder it would fail for ever
            try:
                exporter.export(self._progress.numbered(records))  # its own list: it may sort or empty it
                if self._progress.certain is None:
                    # It cannot tell how far it got: its mark must not be ahead of what survives a kill.
                    exporter.force_flush(_FLUSH_S)
            except RestartExporterError:
                raise
            except RetryableExportError as error:
                self._retries.wait_after(error)
            except PermanentExportError as error:
                self._retries.succeeded()
                return Refusal(problem_of(error), refused_names(error))
            except BaseException as error:  # noqa: BLE001 (a plug-in's defect: tried again, then records are lost)
                # A full disk or a lost connection is retried for ever. Anything else may be a record that a plug-in
                # cannot take: after some tries the batch is halved until the record is alone, and only that one is set
                # aside.
                surprises += 0 if is_passing(error) else 1
                reason = f"unexpected {type(error).__name__}: {shown(error)}"
                # Halves are tried once, and so is what raises the same as its batch did, which has had its tries.
                tries = self._retries.policy.surprises if is_last_word and reason not in self._given_up else 0
                if surprises > tries:
                    self._give_up(reason, is_for_good=is_last_word)
                    return Refusal(reason)
                self._retries.wait_after(error, is_passing=is_passing(error))
            else:
                self._retries.succeeded()
                self._note_after_export(exporter)
                return None

    def _note_after_export(self, exporter: Exporter) -> None:
        """Say what there is to say; the records are stored, and must not come again for a sentence."""
        try:
            self.note(exporter)
        except BaseException as error:  # noqa: BLE001 (a plug-in's property)
            if not self._is_mute:
                self._is_mute = True
                self._say("exporter-notice", f"Exporter {self._name!r} cannot say its notice: {problem_of(error)}")

    def _give_up(self, reason: str, *, is_for_good: bool) -> None:
        """Note that a batch raises the same again and again: each record of it is not tried as often once more."""
        if is_for_good and reason not in self._given_up:
            self._given_up.add(reason)
            _log.exception("Exporter %s raised something unexpected.", self._name)


def require_intact(exporter: Exporter) -> None:
    """Notice that what was stored is gone.

    Raises:
        StoreGoneError: it has to be written again.
    """
    if not exporter.is_intact:
        raise StoreGoneError(f"What was written to {exporter.url} was deleted, moved or cut by another program.")


def _every_nth(records: Iterable[Record], every: int) -> Iterator[Record]:
    """Yield the rows of every `every`-th step, and all that is not a row; a plug-in's 0 or less is every step."""
    return (one for one in records if every <= 1 or not isinstance(one, StepRecord) or one.step % every == 0)
