"""The `console` exporter: what of a record a person at a terminal wants to read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Literal, TextIO, TypeVar

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.console.line import Lines, step_label
from otel_ml_exporters.backends.console.table import LiveTable
from otel_ml_exporters.errors import ExporterClosedError, PermanentExportError
from otel_ml_exporters.exporter import Exporter, every_problems, names_problems
from otel_ml_exporters.records import JsonValue, Params, Record, RunInfo, RunStatus, StepRecord, Summary
from otel_ml_exporters.telling_metrics import significant

__all__ = ["ConsoleExporter"]

Value = TypeVar("Value")

_LOG_WIDTH = 120
"""Characters of a line where the output is not a terminal."""


class ConsoleExporter(Exporter):
    """Writes a line for each closed step, or a live table where its output is a terminal.

    `otel-ml serve` writes to its standard output. A job's own service has no terminal: global rank 0 asks it once a
    second, and prints the lines on its standard error.

    A line has the step, the main metrics in columns that stay where they are, how many writers were missing, and which
    rank took longest in which timer, where the step tells (timers reduced by `max,mean,argmax` or by `rank`).
    Parameters, the summary, a new attempt and the run's end have lines of their own::

        step 120  loss 0.4213  accuracy 0.9130  time/step 0.0512
        step 130  loss 0.4187  accuracy 0.9160  time/step 1.0530  (rank 2 longest in forward: 0.9810 s)
        eval 13  eval/accuracy 0.9031

    Args:
        metrics: globs of the names to show, in order; without, the exporter chooses.
        style: `lines`, `table`, or `auto`: a table in a terminal.
        digits: significant digits.
        width: characters of a line; the terminal's, or 120.
        stream: where to write; standard output.

    **Guarantee**: at least once: nothing is stored, and after a restart the pipeline's own mark counts.
    **Ordering**: as steps close.
    **Non-finite values**: `nan`, `inf`, `-inf`.
    **Names**: as published; those that do not fit into the width are left out.
    """

    def __init__(
        self,
        *,
        every: int = 1,
        metrics: str | Sequence[str] = (),
        style: Literal["auto", "lines", "table"] = "auto",
        digits: int = 4,
        width: int | None = None,
        stream: TextIO | None = None,
    ) -> None:
        problems = [
            *every_problems("console", every),
            *names_problems("console", "metrics", metrics),
            *([f"console.digits: expected 1 to 17, got {digits!r}."] if not _are_digits(digits) else []),
            *([f"console.width: expected at least 20, got {width!r}."] if not _is_width(width) else []),
            *([f"console.style: expected auto, lines or table, got {style!r}."] if style not in _STYLES else []),
        ]
        if problems:
            raise ConfigError(*problems)
        self.every = every
        self._patterns = [metrics] if isinstance(metrics, str) else list(metrics)
        self._style = style
        self._digits = digits
        self._width = width
        self._stream = stream
        self._attempts: dict[tuple[str, str], int] = {}
        self._view: Lines | LiveTable | None = None
        self._closed = False

    def start(self, run: RunInfo) -> None:
        """Write the run's name and choose between lines and table."""
        # The output of a job's own service is a file, so `auto` writes lines there, which rank 0 prints.
        stream = self._stream or sys.stdout
        title = f"{run.experiment}/{run.name}"
        if self._style == "table" or (self._style == "auto" and stream.isatty()):
            self._view = LiveTable(stream, title=title, width=self._width, digits=self._digits, patterns=self._patterns)
        else:
            self._view = Lines(stream, width=self._width or _LOG_WIDTH, digits=self._digits, patterns=self._patterns)
            self._view.text(f"run {title}")

    def position(self) -> int | None:
        """Return None: a console remembers nothing."""
        return None

    def export(self, records: Sequence[Record]) -> None:
        """Write what a person wants to read of `records`.

        Raises:
            PermanentExportError: nobody reads the output anymore.
        """
        if self._closed:
            raise ExporterClosedError("console")
        assert self._view is not None, "start() comes first"
        try:
            for record in records:
                self._write(self._view, record)
            # Once for the batch: a table is drawn, and a pipe is written to, for all its steps together.
            self._view.flush()
        except OSError as error:
            raise PermanentExportError(f"The console cannot be written to: {error}.") from error

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Leave the last state on the screen."""
        self._closed = True
        if isinstance(self._view, LiveTable):
            self._view.close()
        self._view = None

    def _write(self, view: Lines | LiveTable, record: Record) -> None:
        if isinstance(record, StepRecord):
            # Before the step, which is the first one of that attempt.
            self._said_attempt(view, record)
            view.step(record)
        elif isinstance(record, Params):
            _titled(view, "params", _assignments(_of_the_user(record.params)))
        elif isinstance(record, Summary):
            values = (
                f"{name} {significant(value, self._digits)}" for name, value in _of_the_user(record.values).items()
            )
            _titled(view, "summary", "  ".join(values))
        elif isinstance(record, RunStatus):
            view.text(f"run is {record.status}" if record.status == "running" else f"run {record.status}")

    def _said_attempt(self, view: Lines | LiveTable, record: StepRecord) -> None:
        """Say where a new attempt of the job begins: its steps repeat earlier ones."""
        key = record.role, record.axis
        # The first row of a role and axis has no line: after a restart of the service the job may have been in a later
        # attempt for long.
        if record.attempt > self._attempts.setdefault(key, record.attempt):
            view.text(f"attempt {record.attempt} begins at {step_label(record.role, record.axis, record.step)}")
            self._attempts[key] = record.attempt


_STYLES = ("auto", "lines", "table")


def _are_digits(digits: object) -> bool:
    # Not `in range()` alone: 4.0 and True are in it, and no format takes them.
    return type(digits) is int and digits in range(1, 18)


def _is_width(width: object) -> bool:
    return width is None or (isinstance(width, int) and width >= 20)


def _of_the_user(values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return what is not otel_ml's own account; parameters are nested."""
    # With a slash behind the name: the parameters of otel_ml are nested below the one key `otel_ml`, and
    # `otel_ml_notes` is the user's.
    return {name: value for name, value in values.items() if not f"{name}/".startswith(("otel_ml.", "otel_ml/"))}


def _titled(view: Lines | LiveTable, title: str, text: str) -> None:
    if text:
        view.text(f"{title}  {text}")


def _assignments(params: Mapping[str, JsonValue], prefix: str = "") -> str:
    return "  ".join(
        _assignments(value, f"{prefix}{key}.") if isinstance(value, Mapping) else f"{prefix}{key}={value}"
        for key, value in params.items()
    )
