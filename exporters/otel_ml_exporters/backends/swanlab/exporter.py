"""The `swanlab` exporter: which record becomes which message of an offline run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.swanlab.keys import NAMES, Names, identifier, metric_key
from otel_ml_exporters.backends.swanlab.messages import Messages
from otel_ml_exporters.backends.swanlab.run_file import Mark, RunFile
from otel_ml_exporters.errors import on_disk
from otel_ml_exporters.exporter import Exporter, every_problems, renamed, require_started
from otel_ml_exporters.records import (
    Image,
    JsonValue,
    Params,
    Record,
    RunInfo,
    RunStatus,
    StepRecord,
    Summary,
    Text,
)

__all__ = ["SwanlabExporter"]


class SwanlabExporter(Exporter):
    """Writes `swanlog/run-<id>/run-<id>.swanlab` in `OTEL_ML_DIR`: an offline run, as SwanLab itself writes it.

    `swanlab sync <folder>` uploads it, under the account that `swanlab login` stored. Times are those of the records.
    What `run.summary()` gave are the metrics `summary/<name>`. Tables, sounds, histograms, artifacts and spans are not
    stored.

    **Guarantee**: exactly once, after a kill too: the file is cut back to what `otel_ml.json` beside it says, which is
    renamed into place after every batch. Uploading is SwanLab's: it keeps the first value of a metric at a step.
    **Ordering**: by `seq`. SwanLab has one value for each metric and step: a correction is the metric
    `<name>/amended`, a restarted job's attempt is `<name>/attempt_<n>`, and values without a step are
    `<name>/over_time`, whose steps are seconds.
    **Non-finite values**: NaN and ±Inf, as doubles; in the config as texts.
    **Names**: as published; those that begin or end with `.` or `/`, have more than 448 characters, begin with
    `summary/`, or end as a correction, an attempt or `over_time` does, get `metric/` in front, lose these ends, and end
    in a hash. The config's `otel_ml/names` says what each was, and otel_ml reports it once. Projects and run ids with
    characters that SwanLab refuses get a replacement that ends in a hash.
    """

    def __init__(self, *, every: int = 1) -> None:
        if problems := every_problems("swanlab", every):
            raise ConfigError(*problems)
        self.every = every
        self._writer: _Writer | None = None
        self._folder: Path | None = None
        self._renamed: str | None = None
        self._closed = False

    @property
    def place(self) -> str | None:
        """One folder a run; SwanLab tells runs apart by it."""
        return "swanlog"

    @property
    def url(self) -> str | None:
        """The folder for `swanlab sync`."""
        return None if self._folder is None else str(self._folder)

    @property
    def notice(self) -> str | None:
        """Which names SwanLab does not take, when the first one has come."""
        if self._renamed is None and self._writer is not None and self._writer.names.mapped:
            self._renamed = renamed("swanlab", self._writer.names.mapped, f"The config's {NAMES} has")
        return self._renamed

    def start(self, run: RunInfo) -> None:
        """Open the run's file, cut off what a killed predecessor left torn.

        Raises:
            MissingDependencyError: SwanLab is not installed.
            RetryableExportError: the folder cannot be written to.
        """
        name = f"run-{identifier(run.id)}"
        self._folder = run.dir.parent.parent / "swanlog" / name
        messages = Messages(self._folder)
        with on_disk(self._folder):
            self._writer = _Writer(run, messages, RunFile(self._folder / f"{name}.swanlab"))

    def position(self) -> int | None:
        """Return the `seq` up to which the file is good."""
        return None if self._writer is None else self._writer.position

    @property
    def is_intact(self) -> bool:
        """Whether the file has its name, and all that was written to it."""
        return self._writer is None or self._writer.file.is_intact

    def export(self, records: Sequence[Record]) -> None:
        """Append `records` in one write."""
        writer = require_started("swanlab", self._writer, is_closed=self._closed)
        with on_disk(self._folder):
            writer.write(records)

    def force_flush(self, timeout: float) -> None:
        """Wait until the disk has everything; the operating system has it already."""
        if self._writer is not None and not self._closed:
            with on_disk(self._folder):
                self._writer.file.sync()

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Close the file; a run that has ended says so in its last message."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            with on_disk(self._folder):
                self._writer.close(status)


class _Writer:
    """One open run."""

    def __init__(self, run: RunInfo, messages: Messages, file: RunFile) -> None:
        self._messages = messages
        self._started_at = run.started_at
        self.file = file
        file.open()
        # A new file: its first message says which run it is.
        if not file.mark.number:
            file.append([messages.start(run)], Mark(number=1))
        known = file.mark.params.get(NAMES)
        self.names = Names(known if isinstance(known, Mapping) else {})
        self._handlers: Mapping[type, Callable[..., Mark]] = {
            StepRecord: self._step,
            Summary: self._summary,
            Params: self._params,
            Text: self._media,
            Image: self._media,
        }

    @property
    def position(self) -> int:
        return self.file.mark.seq

    def write(self, records: Sequence[Record]) -> None:
        """Append those of `records` that are not in the file yet."""
        new = [record for record in records if record.seq > self.position]
        if not new:
            return
        out: list[bytes] = []
        mark = self.file.mark
        # A batch that failed has counted its corrections already.
        self.file.corrections.forget_new()
        for record in new:
            handler = self._handlers.get(type(record))
            if handler is not None:
                mark = handler(record, mark, out)
        # Behind the records, which may have brought new names.
        names = {key: name for name, key in self.names.mapped.items()}
        # Compared with the mark and not remembered: a batch that failed has left its names in `self.names` alone.
        if names != mark.params.get(NAMES, {}):
            mark = self._configured({NAMES: names}, self._started_at, mark, out)
        self.file.append(out, replace(mark, seq=new[-1].seq))

    def close(self, status: RunStatus | None) -> None:
        """Close the file."""
        if status is not None and status.status != "running":
            self.file.end(self._messages.finish(status))
        self.file.close()

    def _step(self, record: StepRecord, mark: Mark, out: list[bytes]) -> Mark:
        number = mark.number
        for name, value in record.values.items():
            key = metric_key(self.names.key(name), record)
            if record.amendment:
                key = self.file.corrections.key(key, record.step)
            out.append(self._messages.scalar(number, key, record.step, record.time, float(value)))
            number += 1
        return replace(mark, number=number)

    def _summary(self, record: Summary, mark: Mark, out: list[bytes]) -> Mark:
        for at, (name, value) in enumerate(record.values.items()):
            # SwanLab keeps the first value of a step; a summary that is given again is a later one.
            key = f"summary/{self.names.key(name)}"
            out.append(self._messages.scalar(mark.number + at, key, record.seq, record.time, float(value)))
        return replace(mark, number=mark.number + len(record.values))

    def _params(self, record: Params, mark: Mark, out: list[bytes]) -> Mark:
        return self._configured({key: _plain(value) for key, value in record.params.items()}, record.time, mark, out)

    def _configured(self, added: Mapping[str, object], time: float, mark: Mark, out: list[bytes]) -> Mark:
        params = {**mark.params, **added}
        out.append(self._messages.config(params, time))
        return replace(mark, params=params)

    def _media(self, record: Text | Image, mark: Mark, out: list[bytes]) -> Mark:
        out.append(self._messages.media(mark.number, self.names.key(record.name), record))
        return replace(mark, number=mark.number + 1)


def _plain(value: JsonValue) -> object:
    """Return what YAML and JSON both hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in {float("inf"), float("-inf")}):
        return str(value)
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
