"""One experiment run in the service: its engine, its outbox, its exporters."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from otel_ml.explanation import explained
from otel_ml.redaction import redacted
from otel_ml.variable import size_text
from otel_ml.wire.attributes import TIME_AXIS
from otel_ml.wire.readable_name import readable_name
from otel_ml.wire.versions import not_taken_up
from otel_ml_exporters.records import Record, RunInfo, StepRecord
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.observation import Observation, Writer
from otel_ml_service.aggregation.older_state import version_of
from otel_ml_service.aggregation.outcome import Outcome, Status
from otel_ml_service.delivery.self_telemetry_filter import SelfTelemetryFilter
from otel_ml_service.live_runs.artifact_store import with_content
from otel_ml_service.live_runs.artifact_thread import ArtifactThread
from otel_ml_service.live_runs.dead_writers import Died
from otel_ml_service.live_runs.delivery_file import DeliveryFile
from otel_ml_service.live_runs.run_log import RunLog
from otel_ml_service.live_runs.run_notices import PrintingProcess, RunNotices
from otel_ml_service.live_runs.run_pipelines import RunPipelines
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.live_runs.state_files import keep_name
from otel_ml_service.live_runs.storage_errors import StorageErrors
from otel_ml_service.live_runs.too_late import TooLate
from otel_ml_service.live_runs.wait_for_name import UNNAMED, may_be_named
from otel_ml_service.receiver.partial_success import Rejected
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.telemetry import Telemetry
from otel_ml_service.versions import RUN

__all__ = ["LiveRun"]

_log = logging.getLogger(__name__)

_FILES = "files"
"""The fact that tells which artifacts' files are still looked for."""

_SHOWN_SINCE = "self_telemetry"
"""The fact that tells from which record on a series of otel_ml's own account is shown."""

_FILES_S = 0.05
"""How often it is looked whether one was found."""

_FINISH_S = 60.0
"""Seconds exporters get to close when a run has ended; W&B uploads then."""


class LiveRun:
    """Owned by the engine's thread; how far it is, and the notices, may be read by others.

    Args:
        experiment: `ml.experiment.id`.
        folder: of the run.
        journal: identity of the journal that entry numbers belong to.

    Raises:
        VersionError: another version has stored it, which this one cannot follow.
        StorageError: its files cannot be used.

    Attributes:
        printed: notices that went to the process that prints them; the receiver's thread counts. None: it never asked.
        awaits_the_dead: a writer has died, and what it left, or that it did, is not decided and committed yet.
        printing_process: which process that is.
    """

    def __init__(
        self, experiment: str, folder: Path, settings: RunSettings, telemetry: Telemetry, *, journal: str
    ) -> None:
        self.experiment = experiment
        self.folder = folder
        self._settings = settings
        self._telemetry = telemetry
        self._journal = journal
        self.outbox = Outbox(folder / "state" / "run.db")
        self._delivery = DeliveryFile(folder / "state")
        self.log = RunLog(experiment, folder / settings.log if settings.log else None)
        try:
            self._engine = self._restored()
            self._too_late = TooLate(folder, self.outbox, settings.late_max, telemetry, self.say)
            self._self_telemetry = SelfTelemetryFilter(self.outbox.facts.get(_SHOWN_SINCE, "{}"))
            self.rejected = int(self.outbox.facts.get("rejected", "0"))
            self.files = ArtifactThread(folder, self.outbox.facts.get(_FILES, ""))
        except BaseException:
            # Each request of a run that cannot be opened tries it: what stayed open would grow with them.
            self.outbox.close()
            self.log.close()
            raise
        self._notices = RunNotices(self.outbox.notices)
        self._engine.expect(self.files.waiting)
        consumed = self.outbox.consumed
        self._consumed = consumed[1] if consumed is not None and consumed[0] == journal else 0
        self.is_touched = False
        self.awaits_the_dead = self._is_someone_leaving = False
        self._now = 0.0
        self._has_steps = False
        self.trouble = StorageErrors(f"Run {experiment}")
        self._engine.note_rejected(self.rejected)
        self._unwritten: tuple[Outcome, Sequence[str], str, int] | None = None
        self._unstored: Commit | None = None
        self.pipelines = RunPipelines(settings, self.outbox, self.log, self.say, self._self_telemetry)
        self.info = self._run_info()
        keep_name(self.info)
        self.status: Status = self._engine.status
        # What a launch that has ended was told is no news to the one that goes on with the run.
        self.printed = None if self.status.state == "running" else len(self.outbox.notices)
        self.printing_process = PrintingProcess()
        self.findings = self._engine.findings
        if self.outbox.damage:
            _log.error("%s", explained(f"Run {experiment}: {self.outbox.damage}", "damaged-file"))
            self.say("damaged-file", self.outbox.damage)

    def _restored(self) -> Engine:
        """Return the engine as it was committed; a new one where a disk has changed that."""
        settings = self._settings.engine
        state: Mapping[str, bytes] = {}
        try:
            state = self.outbox.state()
            return Engine(self.experiment, settings, state, kept=self.outbox.entry, seq=self.outbox.base)
        except Exception as error:
            if "run" in state and (version := version_of(state)) != RUN:
                # Only what a disk has changed is forgotten, not what another version has stored.
                raise not_taken_up(self.outbox.path, version) from error
            _log.exception("Run %s: the engine's state cannot be read: %s", self.experiment, error)
            self.outbox.forget_state()
        return Engine(self.experiment, settings, kept=self.outbox.entry, seq=self.outbox.base)

    # Engine thread

    def observe(
        self,
        entry: int,
        observations: Iterable[Observation],
        now: float,
        *,
        rejected: Mapping[Rejected, int] = MappingProxyType({}),
    ) -> None:
        """Take the observations of a journal entry; one seen before the last restart is skipped.

        Args:
            entry: its number.
            observations: of this run.
            now: seconds since the epoch.
            rejected: what of this run in the same request will never be accepted, and how many items that are.
        """
        if entry <= self._consumed:
            return
        self.rejected += sum(rejected.values())
        self._engine.note_rejected(self.rejected)
        for each in rejected:
            self._notices.say_rejected(each)
        for observation in observations:
            try:
                self._engine.observe(observation, now)
            except Exception:  # noqa: BLE001 (a defect of ours must not take the other runs with it)
                # Not what it holds: that may be 64 MiB, and is the user's.
                kind, writer = type(observation).__name__, observation.writer
                _log.exception("Run %s: a %s of rank %d could not be taken.", self.experiment, kind, writer.rank)
                self._telemetry.count("dropped", reason="internal error")
        self._consumed = entry
        self.is_touched = True

    def tell(self, observations: Iterable[Observation], now: float) -> None:
        """Take observations that come from the service itself."""
        for observation in observations:
            self._engine.observe(observation, now)
        self.is_touched = True

    @property
    def awaited_writers(self) -> Sequence[Writer]:
        """Those of which more may come."""
        return self._engine.awaited_writers

    def note_died(self, died: Died, now: float) -> None:
        """Take what the process table of this host says of its writers."""
        self._engine.note_died(died.settled, now, died.leaving)
        self.is_touched |= bool(died.settled)
        self._is_someone_leaving = bool(died.leaving)
        # Until that is committed, nobody who leaves is told who else is there.
        self.awaits_the_dead = self._is_someone_leaving or self.is_touched

    def advance(self, now: float, refused_at: float | None = None) -> None:
        """Close what is due; `refused_at` is when something could not be stored last, of whichever run."""
        self._now = now
        # While the journal takes nothing, silence of a writer says nothing of it.
        if refused_at is not None:
            self._engine.note_refused(refused_at)
        for artifact in self.files.take():
            self._engine.found(artifact)
            self.is_touched = True
        deadline = self._engine.next_deadline()
        if self.is_touched or (deadline is not None and deadline <= now):
            self._engine.advance(now)
            self.is_touched = True

    def next_deadline(self) -> float | None:
        """Return when `advance` must be called though nothing arrives."""
        due = self._engine.next_deadline()
        if not self.files.waiting:
            return due
        look = self._now + _FILES_S
        return look if due is None else min(look, due)

    def commit(self) -> None:
        """Make durable all that was observed, and let the exporters have what was decided.

        Raises:
            StorageError: not all of it was stored; call again, the same is then tried again.
        """
        if self.is_stuck:
            self._commit()  # what came since it was stuck is not in it, and the journal forgets that, too
        self._commit()

    def _commit(self) -> None:
        is_new = self.is_touched or self._notices or self.outbox.unsaved or self._unwritten
        if self._unstored is None and is_new:
            self._unstored = self._next_commit()
        if self._unstored is None:
            return
        status = self._engine.status  # once: it is counted over all writers
        self._keep_delivery(status, self._unstored.records)  # before the end can be read anywhere
        self.outbox.commit(self._unstored)
        if (told := self.trouble.over()) is not None:
            self.say("storage", told)
        for sentence in self._unstored.notices:
            _log.warning("Run %s: %s", self.experiment, sentence)
        self._unstored = None
        # It was running, and no longer is.
        has_ended = self.status.state == "running" != status.state
        self.status = status
        self.awaits_the_dead = self._is_someone_leaving
        self.findings = self._engine.findings
        # Behind the commit: what a run is called is told to exporters once it is durable.
        self._describe(self._run_info())
        self._deliver()
        if has_ended:  # of a short run the exporters have just been started
            self.pipelines.hurry()

    def resume(self) -> None:
        """Go on delivering what a predecessor left; each backend tells what it has, whatever the predecessor thought.

        What was handed to W&B's own process and not written yet died with the predecessor.
        """
        if self.outbox.last_seq:
            self._deliver(even_idle=True)

    @property
    def is_stuck(self) -> bool:
        """Whether something that was decided could not be committed, and is to be tried again."""
        return self._unstored is not None or self._unwritten is not None

    @property
    def is_ending(self) -> bool:
        """Whether the run has ended, and is about to be delivered, or that to be stored: someone may wait for it."""
        return self.status.state != "running" and (self.outbox.unsaved or self.pipelines.are_at_work)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, everything is delivered, and the exporters are closed."""
        return self.status.state != "running" and self.pipelines.is_delivered and self.pipelines.are_stopped

    def finish(self) -> None:
        """Close the exporters of a run that has ended, once they have everything, and that is stored.

        It is called often: exporters for which there was no thread begin here, though nothing more is committed.
        The last process of a job waits until they are closed; in a container this service ends with it.
        """
        if self.pipelines.lack_threads:
            self.pipelines.start(self.info, even_idle=False)
        self._keep_delivery(self.status)
        if self.status.state == "running" or not self.pipelines.is_delivered:
            return
        if self.outbox.unsaved and not self.is_stuck:
            return
        self.pipelines.ask_to_stop(_FINISH_S)

    def _keep_delivery(self, status: Status, more: Sequence[Record] = ()) -> None:
        """Let commands know how far each exporter is; `more` records follow."""
        if status.state == "running":
            self._delivery.remove()
        else:
            self._delivery.keep(more[-1].seq if more else self.outbox.last_seq, self.pipelines.exporters)

    def forget_oldest(self, share: float, limit: int) -> None:
        """Forget the oldest records; the quickest exporter keeps its place, whatever the others lose.

        Args:
            share: of the records that are kept.
            limit: in bytes, why.
        """
        box = self.outbox
        quickest = max((box.last_seq - self.pipelines.behind(name) for name in self._settings.exporters), default=0)
        # One exporter at least has written what goes.
        up_to = min(quickest, box.first_seq + int((box.last_seq - box.first_seq + 1) * share))
        if up_to < box.first_seq:
            return
        box.forget(up_to)
        self.say(
            "disk-limit",
            f"The limit of {size_text(limit)} (OTEL_ML_DIR_MAX) is reached: the oldest records are no longer kept, and "
            "an exporter that has not written them loses its place. With the exporter jsonl they are in metrics.jsonl: "
            "otel-ml replay --experiment NAME writes the whole run anew.",
        )

    def close(self) -> None:
        """Wait for the exporters' deadline, keep their positions, and close the files."""
        self.files.close()
        self.pipelines.join()
        self.outbox.close()
        self._delivery.remove()
        self.log.close()

    def say(self, slug: str, sentence: str) -> None:
        """Add a notice, from any thread; it is kept with the next commit."""
        self._notices.say(slug, sentence)

    def _next_commit(self) -> Commit:
        if self._unwritten is None:
            said = self._notices.take()
            outcome = self._engine.take()
            # Before `stored` is asked, which is to have them: a restart looks for what is not found by then.
            self.files.look_for(outcome.named)
            self._unwritten = outcome, said, self.files.stored, self._consumed
            self.is_touched = False
        # Kept until they are written: the engine hands out everything once.
        outcome, said, files, consumed = self._unwritten
        records = with_content(outcome.records, outcome.files, self.folder)
        self._has_steps |= any(isinstance(record, StepRecord) and record.axis != TIME_AXIS for record in records)
        facts = self._too_late.keep(outcome.too_late) | self._note_self_telemetry(records)
        if files != self.outbox.facts.get(_FILES, "[]"):
            facts[_FILES] = files
        self._unwritten = None
        return Commit(
            records=records,
            changes=outcome.changes,
            consumed=(self._journal, consumed),
            notices=tuple(map(redacted, (*outcome.notices, *said))),
            facts=facts | ({"rejected": str(self.rejected)} if self.rejected else {}),
        )

    def _note_self_telemetry(self, records: Iterable[Record]) -> dict[str, str]:
        """Find what of it is shown from here on: it is kept with these records, so a restart shows the same."""
        before = self._self_telemetry.since
        self._self_telemetry.note(records)
        since = self._self_telemetry.since
        return {} if since == before else {_SHOWN_SINCE: since}

    def _deliver(self, *, even_idle: bool = False) -> None:
        """Start the exporters that have something to do: at the first record, and where a run goes on after its end."""
        if even_idle or not self._waits_for_a_name():
            self.pipelines.start(self.info, even_idle=even_idle)

    @property
    def is_placed(self) -> bool:
        """Whether it stays where it is: something of it is in a backend, or about to be."""
        return bool(self.pipelines.started) or (self.outbox.last_seq > 0 and not self._waits_for_a_name())

    def _waits_for_a_name(self) -> bool:
        """Whether the exporters are not to begin yet: it may still get another name than that which nobody chose."""
        if self.status.writers or self._has_steps or self._settings.experiment_name != UNNAMED:
            return False
        return may_be_named(self._engine.facts, self.status, self._now)

    def _describe(self, info: RunInfo) -> None:
        if (info.name, info.notes) != (self.info.name, self.info.notes):
            keep_name(info)
        self.info = info

    def _run_info(self) -> RunInfo:
        facts = self._engine.facts
        return RunInfo(
            id=self.experiment,
            experiment=facts.experiment_name or self._settings.experiment_name,
            name=facts.run_name or self._settings.run_name or readable_name(self.experiment),
            dir=self.folder,
            started_at=facts.started_at,
            tags=facts.tags,
            notes=facts.notes,
        )
