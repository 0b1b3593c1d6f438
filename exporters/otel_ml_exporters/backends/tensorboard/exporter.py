"""The `tensorboard` exporter: which record becomes which event in which sub-run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.tensorboard import summary
from otel_ml_exporters.backends.tensorboard.event_file import EventFile, marked
from otel_ml_exporters.backends.tensorboard.exporter_state import ExporterState
from otel_ml_exporters.backends.tensorboard.hparams import SUMMARY_PREFIX, flat_params, write_hparams
from otel_ml_exporters.backends.tensorboard.hparams_sessions import MAIN, Sessions
from otel_ml_exporters.backends.tensorboard.layout import MOST_CHARTS, bands, layout_value, metric_of
from otel_ml_exporters.backends.tensorboard.markdown import markdown_table
from otel_ml_exporters.errors import ExporterClosedError, RetryableExportError
from otel_ml_exporters.exporter import Exporter, every_problems
from otel_ml_exporters.records import (
    Audio,
    HistogramValue,
    Image,
    Params,
    Record,
    RunInfo,
    RunStatus,
    StepRecord,
    Summary,
    Table,
    Text,
)

__all__ = ["TensorBoardExporter"]

TIME, CORRECTED = "time", "amended"
# Where others have time and host, always the same: a restart finds it, and goes on.
_FILE = "events.out.tfevents.1.otel_ml"

Events = dict[str, list[tuple[int, bytes]]]
"""By sub-run: `seq` and Event of each record."""


class TensorBoardExporter(Exporter):
    """Writes `<run dir>/tensorboard`, one TensorBoard run with up to two sub-runs.

    * The run itself has every axis with steps; a name is on one axis (docs/protocol.md §2.10), so a tag counts
      that axis' own steps, and its description says which where it is not `step`.
    * `time`: values without a step, by seconds since the run began. They bear the same names as values with a step,
      and TensorBoard's loader erases the newer points of a tag that steps back.
    * `amended`: corrections, for the same reason.

    What `run.summary()` gave are the tags `summary/<name>`, shown as metrics of the HPARAMS tab. Where a script
    called `add_hparams()` again, each further row is a sub-run of its `run_name`.
    Each Event that completes a record carries the record's `seq`. The run's own file is written last in every batch
    and its last `seq` is the position; what a sub-run already has of a batch is not written to it again.

    **Guarantee**: exactly once, after a kill too: a torn end is cut off, and `seq` and values are the same bytes.
    Stored as float32: integers are exact to 2²⁴. Spans and artifacts are not stored.
    **Ordering**: steps ascend per tag. A new attempt steps back on purpose: TensorBoard then shows the new attempt's
    points instead of the old ones. Of corrections that step back, its default loader shows the newest.
    **Non-finite values**: NaN and ±Inf are stored and shown as such; beyond ±3.4e38 a value is ±Inf.
    **Names**: as published; TensorBoard takes any.
    """

    def __init__(self, *, every: int = 1) -> None:
        if problems := every_problems("tensorboard", every):
            raise ConfigError(*problems)
        self.every = every
        self._closed = False
        self._run: RunInfo | None = None
        self._notes = ExporterState()
        self._notes_unsaved = self._notes_are_lost = False
        self._files: dict[str, EventFile] = {}
        self._forget_names()

    @property
    def url(self) -> str | None:
        """The folder for `tensorboard --logdir`."""
        return str(self._folder) if self._run else None

    @property
    def _folder(self) -> Path:
        assert self._run is not None, "start() comes first"
        return self._run.folder("tensorboard")

    @property
    def _sessions(self) -> Sessions:
        return Sessions.named_in(self._notes.params)

    @property
    def _started(self) -> float:
        assert self._run is not None, "start() comes first"
        return self._run.started_at

    def start(self, run: RunInfo) -> None:
        """Open the run's event files, cut off what a killed predecessor left torn.

        Raises:
            RetryableExportError: the folder cannot be written to.
        """
        self._run = run
        try:
            self._file(MAIN)
            self._notes = self._saved_notes()
            for name in (TIME, CORRECTED, *self._sessions.folders.values()):
                # Not made before it has a value: TensorBoard would list a run with nothing in it.
                if (self._folder / name / _FILE).exists():
                    self._file(name)
        except OSError as error:
            raise RetryableExportError(f"{self._folder} cannot be opened: {error}.") from error

    def _saved_notes(self) -> ExporterState:
        try:
            return ExporterState.load(self._folder / "otel_ml.json")
        except ValueError:  # damaged: made again from the records, of which the files leave out what they have
            self._notes_are_lost = True
            return ExporterState()

    def position(self) -> int | None:
        """Return the `seq` of the last batch that is in the files; 0 where what is beside them was damaged."""
        return 0 if self._notes_are_lost else self._file(MAIN).last_seq

    @property
    def is_intact(self) -> bool:
        """Whether all event files have their names, and all that was written to them."""
        return all(file.is_intact for file in self._files.values())

    def export(self, records: Sequence[Record]) -> None:
        """Append `records`: sub-runs first, the run's own file last."""
        if self._closed:
            raise ExporterClosedError("tensorboard")
        if not records:
            return
        events: Events = defaultdict(list)
        try:
            for record in records:
                self._add(record, events)
            self._write(events, records[-1].seq)
        except OSError as error:
            # Of what was not written the files have neither descriptions nor the layout.
            self._forget_names()
            raise RetryableExportError(f"{self._folder} cannot be written to: {error}.") from error

    def force_flush(self, timeout: float) -> None:
        """Wait until the disk has everything; the operating system has it already."""
        for file in self._files.values():
            file.sync()

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Close the files; the run's end becomes the session's status in the HPARAMS tab."""
        if self._closed:
            return
        self._closed = True
        for file in self._files.values():
            file.close()
        if status is not None and self._run is not None:
            # Beside the files, which are closed: parameters and the end of the run are in a file of their own.
            self._note(end=_end(status))
            if self._notes_unsaved:
                self._save_notes()

    def _file(self, name: str) -> EventFile:
        if name not in self._files:
            file = EventFile(self._folder / name / _FILE, created=self._started)
            file.open()
            self._files[name] = file
        return self._files[name]

    def _forget_names(self) -> None:
        """Write descriptions and the layout again with the next values: the files may not have them."""
        self._encoders: dict[tuple[str, str, str], summary.ScalarEncoder] = {}
        self._names: set[str] = set()
        self._charts: dict[str, None] = {}
        self._layout_due = True

    def _add(self, record: Record, events: Events) -> None:
        """Put the record's Event among `events`, or what it says into the notes."""
        if isinstance(record, StepRecord):
            self._add_step(record, events)
        elif isinstance(record, Summary):
            self._note(metrics=list(dict.fromkeys([*self._notes.metrics, *record.values])))
            for folder, metrics in self._sessions.by_folder(record.values).items():
                tags = {SUMMARY_PREFIX + name: value for name, value in metrics.items()}
                # New names of a summary get no chart of the layout: that is of series.
                values, _ = self._encoder("trainer", "step", folder).encode(tags)
                events[folder].append((record.seq, summary.event(record.time, record.seq, values)))
        elif isinstance(record, Params):
            self._note(params=self._notes.params | flat_params(record.params))
        elif isinstance(record, RunStatus):
            self._note(end=_end(record))
        elif isinstance(record, (Text, Table, Image, Audio, HistogramValue)):
            events[MAIN].append((record.seq, summary.event(record.time, record.step or 0, _media_value(record))))

    def _add_step(self, record: StepRecord, events: Events) -> None:
        target = CORRECTED if record.amendment else TIME if record.axis == "time" else MAIN
        values, new = self._encoder(record.role, record.axis, target).encode(record.values)
        # Charts are of the run's own series: `time` and `amended` have the same names once more.
        if new and target == MAIN:
            self._names.update(new)
            charts = dict.fromkeys([*self._notes.bands, *bands(new, self._names)])
            self._note(bands=list(charts)[:MOST_CHARTS])
            self._add_charts(new)
        events[target].append((record.seq, summary.event(record.time, record.step, values)))

    def _add_charts(self, names: Iterable[str]) -> None:
        """Give each metric a chart; after a restart the metrics come again, those with a band are in the notes."""
        found = {metric: None for name in names if (metric := metric_of(name)) is not None}
        charts = {**self._charts, **found} if len(self._charts) < MOST_CHARTS else self._charts
        self._layout_due |= len(charts) > len(self._charts)
        self._charts = charts

    def _encoder(self, role: str, axis: str, target: str) -> summary.ScalarEncoder:
        key = role, axis, target
        if key not in self._encoders:
            self._encoders[key] = summary.ScalarEncoder(_description(role, axis))
        return self._encoders[key]

    def _note(self, **changed: object) -> None:
        notes = replace(self._notes, **changed)  # type: ignore[arg-type]  # mypy cannot check replace(**)
        self._notes_unsaved |= notes != self._notes
        self._layout_due |= notes.bands != self._notes.bands
        self._notes = notes

    def _write(self, events: Events, last_seq: int) -> None:
        for name in sorted(events.keys() - {MAIN}):
            self._append(name, events[name])
            self._files[name].sync()  # rare; it must not be younger than the position in the run's own file
        if self._notes_unsaved:
            self._save_notes()
        # Last: were it written before a sub-run and the process killed in between, the position would be ahead of that.
        main = events[MAIN]
        # This file says the position: where a batch ends with a record of another one, an empty Event does.
        if not main or main[-1][0] != last_seq:
            main.append((last_seq, summary.event(self._started, 0, b"")))
        self._append(MAIN, main)

    def _append(self, name: str, events: Sequence[tuple[int, bytes]]) -> None:
        """Append what the file does not have yet."""
        file = self._file(name)
        missing = [marked(seq, event) for seq, event in events if seq > file.last_seq]
        if not missing:
            return
        if name == MAIN and self._layout_due and (charts := [*self._notes.bands, *self._charts]):
            layout = layout_value(list(dict.fromkeys(charts))[:MOST_CHARTS], set(self._notes.bands))
            missing.insert(0, summary.event(self._started, 0, layout))
        file.append(missing, seq=events[-1][0])
        # A sub-run has no layout, so it stays due.
        self._layout_due &= name != MAIN

    def _save_notes(self) -> None:
        assert self._run is not None
        notes = self._notes = replace(self._notes, version=self._notes.version + 1)
        for folder, of_session in self._sessions.notes(notes):
            if of_session.params or of_session.metrics:
                row = replace(self._run, id=f"{self._run.id}/{folder}") if folder else self._run
                write_hparams(self._folder / folder, row, of_session)
        notes.save(self._folder / "otel_ml.json")
        self._notes_unsaved = False


def _end(status: RunStatus) -> tuple[str, float] | None:
    return None if status.status == "running" else (status.status, status.time)


def _description(role: str, axis: str) -> str:
    if axis == "step":
        return ""
    return f"Steps are those of axis `{axis}`, role `{role}`."


def _media_value(record: Text | Table | Image | Audio | HistogramValue) -> bytes:
    if isinstance(record, Text):
        return summary.text_value(record.name, record.text)
    if isinstance(record, Table):
        return summary.text_value(record.name, markdown_table(record.columns, record.rows))
    if isinstance(record, Image):
        return summary.image_value(record.name, record.png, record.width, record.height, record.caption)
    if isinstance(record, Audio):
        return summary.audio_value(record.name, record.wav, record.sample_rate, record.caption)
    return summary.histogram_value(record.name, record.edges, record.counts)
