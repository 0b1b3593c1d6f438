"""The exporters of a run: each is started when there is something for it, and says how far it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import RunInfo
from otel_ml_service.delivery.exporter_progress import PipelineStatus
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.self_telemetry_filter import SelfTelemetryFilter, everything
from otel_ml_service.live_runs.run_log import RunLog
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.outbox import Outbox

__all__ = ["RunPipelines"]

_log = logging.getLogger(__name__)


class RunPipelines:
    """Started and stopped by the engine's thread; how far they are may be read by others.

    Args:
        settings: of the run.
        outbox: of the run.
        log: that exporters speak into while they are made.
        say: adds a notice to the run.
        self_telemetry: which of otel_ml's own series they get, unless they get all.

    Attributes:
        started: by name.
    """

    def __init__(
        self,
        settings: RunSettings,
        outbox: Outbox,
        log: RunLog,
        say: Callable[[str, str], None],
        self_telemetry: SelfTelemetryFilter,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._log = log
        self._say = say
        self._self_telemetry = self_telemetry
        self.started: dict[str, Pipeline] = {}
        self._without_thread: set[str] = set()

    # Engine thread

    def foresee(self, info: RunInfo) -> None:
        """Say what exporters know now of what they will say once they have started: the job may be shorter."""
        for name, make in self._settings.exporters.items():
            try:
                sentence = make().foreseen(info.of_instance(name))
            except (Exception, SystemExit):  # noqa: BLE001 (code of others; what is wrong is reported when it starts)
                _log.debug("Exporter %s foresees nothing.", name, exc_info=True)
            else:
                if sentence is not None:
                    self._say("exporter-notice", sentence)

    def start(self, info: RunInfo, *, even_idle: bool) -> None:
        """Start the exporters that have something to do, or all; tell those at work what is known of the run."""
        for name, make in self._settings.exporters.items():
            pipeline = self.started.get(name)
            if pipeline is not None:
                pipeline.describe(info)
            # One that has closed, with all delivered, is made anew for records that came after that.
            is_due = even_idle or self.behind(name) or name in self._without_thread
            if is_due and (pipeline is None or pipeline.is_stopped):
                self._start(name, self._pipeline(name, make, info))

    def _start(self, name: str, pipeline: Pipeline) -> None:
        """Start an exporter; where the host has no thread left, it is none of the started ones, and tried again."""
        try:
            with self._log.speaking():
                pipeline.start()
        except RuntimeError as error:
            # It is tried again often, and said once.
            if name not in self._without_thread:
                self._without_thread.add(name)
                with self._log.speaking():
                    _log.warning("Exporter %s cannot begin yet: %s", name, error)
        else:
            self._without_thread.discard(name)
            self.started[name] = pipeline

    @property
    def lack_threads(self) -> bool:
        """Whether an exporter found no thread, and is to be started again."""
        return bool(self._without_thread)

    def hurry(self) -> None:
        """Tell those that are not done, and whose backend is away, that the run has ended."""
        for pipeline in self.started.values():
            pipeline.hurry()

    def ask_to_stop(self, timeout: float) -> None:
        """Tell every exporter to deliver what it can and close, within `timeout` seconds."""
        for pipeline in self.started.values():
            pipeline.ask_to_stop(timeout)

    def join(self) -> None:
        """Wait for the deadline that they were given."""
        for pipeline in self.started.values():
            pipeline.join()

    def _pipeline(self, name: str, make: Callable[[], Exporter], info: RunInfo) -> Pipeline:
        mark = self._outbox.mark(name)

        def keep(seq: int, lost: Mapping[str, int]) -> None:
            self._outbox.set_mark(name, Mark(seq, dict(lost)))

        def seq_offset(position: int) -> int:
            offset = self._outbox.seq_offset(name, position)
            if offset:
                self._say(
                    "run-begun-elsewhere",
                    f"Exporter {name!r} has {offset} records of this run that {self._outbox.path} does not know: the "
                    "run was begun in another folder, or that file was removed. What is recorded from here on follows.",
                )
            return offset

        return Pipeline(
            name,
            make,
            info,
            self._outbox,
            delivered=mark.seq,
            lost=mark.lost,
            mark=keep,
            say=self._say,
            retry=self._settings.retry,
            seq_offset=seq_offset,
            select=everything if self._settings.all_self_telemetry else self._self_telemetry.select,
        )

    # Any thread

    @property
    def is_delivered(self) -> bool:
        """Whether every exporter has everything that there is."""
        return all(self.behind(name) == 0 for name in self._settings.exporters)

    @property
    def lacking(self) -> tuple[str, ...]:
        """The exporters that were asked for and do not have everything that there is."""
        return tuple(name for name in self.exporters if self.behind(name))

    @property
    def are_stopped(self) -> bool:
        """Whether every exporter that was started is closed."""
        return all(pipeline.is_stopped for pipeline in self.started.values())

    @property
    def are_at_work(self) -> bool:
        """Whether an exporter writes, or closes as all have everything; one whose backend is away does not."""
        if self.is_delivered:
            return not self.are_stopped
        return any(each.behind and each.status.state in {"starting", "running"} for each in self.started.values())

    @property
    def are_starting(self) -> bool:
        """Whether a backend is being opened, for the first time or again, or is about to be."""
        is_ahead = any(name not in self.started and self.behind(name) for name in self._settings.exporters)
        return is_ahead or any(pipeline.is_starting for pipeline in self.started.values())

    @property
    def exporters(self) -> dict[str, PipelineStatus]:
        """How far each exporter is that was asked for, also of those that have not been started, or cannot be."""
        return {name: self._exporter_status(name) for name in (*self._settings.exporters, *self._settings.unavailable)}

    @property
    def pending(self) -> int:
        """How many records the slowest exporter has still to write, of those that are at work."""
        return max(map(self.behind, self._settings.exporters), default=0)

    def behind(self, name: str) -> int:
        """Return how many records an exporter has still to write."""
        pipeline = self.started.get(name)
        return self._outbox.last_seq - self._outbox.mark(name).seq if pipeline is None else pipeline.behind

    def _exporter_status(self, name: str) -> PipelineStatus:
        pipeline = self.started.get(name)
        if pipeline is not None:
            return pipeline.status
        mark = self._outbox.mark(name)
        if name in self._settings.unavailable:
            return PipelineStatus("unavailable", mark.seq, mark.lost, problem=self._settings.unavailable[name])
        # It is started with the first record that it lacks.
        return PipelineStatus("stopped" if self.behind(name) == 0 else "starting", mark.seq, mark.lost)
