"""Exporter `wandb`: one W&B run, one history row for each closed step.

Online where there is an API key and the server answers, else offline (reported once); `mode` or `WANDB_MODE` decide
otherwise. A run stays as it began. Credentials stay in W&B's own places (`WANDB_API_KEY`, `.netrc`) and are neither
read nor stored here. An offline run is uploaded by `wandb sync wandb/offline-run-*-<id>`, all its folders at once.

Guarantee:
    Scalars exactly once, over any number of SIGKILLs of the exporter: `_step` is the record's `seq`, and a restart goes
    on after the last row of the server, or of the run's own files, whose torn ends are cut off first. Media, tables and
    artifacts are written at least once, under the same names.
Ordering:
    `_step` ascends. The index on an axis is the value `otel_ml/<axis>`, and every metric is drawn over its own axis, or
    over the metric that a script's `define_metric(step_metric=…)` names, which its row then has. A
    correction is a further row with the same axis value and `otel_ml/amendment`; every row has `otel_ml/attempt`.
Non-finite values:
    NaN and ±Inf are stored as such; in config and summary as the texts "NaN", "Infinity", "-Infinity".
Names:
    As published; `_step`, `_timestamp`, `_runtime`, `_wandb`, and what is one of their keys already, become
    `metric/<name>`, and `*` is `star` with a hash: W&B takes it for all names that begin so. Names of images, texts,
    tables and sounds are cut where they are too long for the file that W&B makes. The config's `otel_ml/names` says
    what each was, and otel_ml reports it once. Run, project and artifact names with characters that W&B refuses get a
    replacement that ends in a hash; the artifact's metadata have the `name`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from otel_ml.exceptions import ConfigError
from otel_ml.quantities import seconds
from otel_ml_exporters.backends.wandb.changed_names import ChangedNames
from otel_ml_exporters.backends.wandb.connection import MODES
from otel_ml_exporters.backends.wandb.errors import export_error
from otel_ml_exporters.backends.wandb.open_run import OpenRun, Options, foreseen_notice, load_wandb, open_run, tags_of
from otel_ml_exporters.backends.wandb.session import NAMES, Session
from otel_ml_exporters.backends.wandb.step_metrics import StepMetrics
from otel_ml_exporters.backends.wandb.transaction_log import LogTail
from otel_ml_exporters.errors import (
    PermanentExportError,
    RestartExporterError,
    RetryableExportError,
    translated,
)
from otel_ml_exporters.exporter import Exporter, every_problems, renamed, require_started
from otel_ml_exporters.records import Record, RunInfo, RunStatus

__all__ = ["WandbExporter"]

# 137 is what a shell has of a process that SIGKILL ended.
_EXIT_CODES = {"finished": 0, "failed": 1, "killed": 137}
_FLUSH_POLL = 0.02

_ON_DISK_S = 15.0
"""W&B's process writes its log several times a second; what is not there after so long is lost to it."""


class WandbExporter(Exporter):
    """Writes one W&B run.

    Args:
        mode: `auto`, `online`, `offline` or `disabled`.
        project: by default `WANDB_PROJECT`, else the experiment's name.
        entity: user or team; by default W&B's own.
        group: runs to show together; by default what a tag `group:…` of the run says.
        job_type: what kind of run; by default what a tag `job_type:…` of the run says.
        tags: besides the run's own.
        notes: instead of the run's own.
        every: export only steps that are multiples of this.
        names: most metrics; values of further ones are left out, counted and said. W&B recommends at most 10,000 names
            in a project.
    """

    def __init__(
        self,
        *,
        mode: str = "auto",
        project: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        job_type: str | None = None,
        tags: Iterable[str] = (),
        notes: str | None = None,
        every: int = 1,
        names: int = 10_000,
    ) -> None:
        # A text is an iterable, too, of its letters.
        given = list(tags) if isinstance(tags, Iterable) and not isinstance(tags, str) else tags
        are_texts = isinstance(given, list) and all(isinstance(tag, str) for tag in given)
        problems = [] if are_texts else [f"wandb.tags: expected a list of texts, got {given!r}."]
        self._options = Options(mode, project, entity, group, job_type, tuple(given) if are_texts else (), notes)
        _check(self._options, every, names, problems)
        self.every = every
        self._names = names
        self._opened: OpenRun | None = None
        self._session: Session | None = None
        self._tail: LogTail | None = None
        self._awaited: tuple[int, float] | None = None
        self._renamed: str | None = None
        self._closed = False

    def foreseen(self, run: RunInfo) -> str | None:
        """Return why the run will be offline: importing W&B takes longer than a short job."""
        return foreseen_notice(run, self._options)

    def start(self, run: RunInfo) -> None:
        """Open or resume the run; see `Exporter.start`."""
        try:
            with translated(export_error):
                opened = open_run(run, self._options)
                self._session = Session(
                    opened.run,
                    opened.position or 0,
                    self._names,
                    StepMetrics(run.folder("wandb") / "step_metrics.json"),
                    ChangedNames(run.folder("wandb") / "names.json"),
                )
        except PermanentExportError as error:
            raise ConfigError(f"wandb: cannot open the run: {error.sentence}", slug="exporter-failing") from error
        self._tail = LogTail(opened.log) if opened.mode != "disabled" else None
        self._opened = opened

    def position(self) -> int | None:
        """Return the `_step` of the last stored row, as it was at the start."""
        return self._opened.position if self._opened else None

    @property
    def is_intact(self) -> bool:
        """Whether the log of an offline run, of which it consists, is there; a server has the rows of another one."""
        is_offline = self._opened is not None and self._opened.mode == "offline"
        return not is_offline or self._tail is None or self._tail.is_intact

    def export(self, records: Sequence[Record]) -> None:
        """Hand `records` to W&B's service process; rows that it has already are skipped."""
        session = require_started("wandb", self._session, is_closed=self._closed)
        self._check_the_disk()
        with translated(export_error):
            session.write(records)
        if self._awaited is None:
            # Not moved on by later batches: the deadline would never come.
            self._awaited = (session.last_row, time.monotonic() + _ON_DISK_S)

    def describe(self, run: RunInfo) -> None:
        """Add tags to those that W&B has, replace name and notes."""
        if self._opened is None or self._closed:
            return
        opened = self._opened.run
        with translated(export_error):
            opened.tags = tuple(dict.fromkeys((*opened.tags, *tags_of(run, self._options))))
            opened.notes = self._options.notes or run.notes
            opened.name = run.name or run.id

    def _check_the_disk(self) -> None:
        """Rows that are not in the transaction log long after they were handed over never will be: its disk is full.

        Raises:
            RestartExporterError: `wandb-core` has lost them; a new one gets them again.
        """
        if self._awaited is None or self._tail is None:
            return
        row, deadline = self._awaited
        # Looked at with each batch and not waited for: W&B's process writes while training goes on.
        if self._tail.advance() >= row:
            self._awaited = None
        elif time.monotonic() > deadline:
            self._give_up(row, _ON_DISK_S)

    def force_flush(self, timeout: float) -> None:
        """Wait until every row is in the transaction log on disk.

        Raises:
            RestartExporterError: not within `timeout` seconds.
        """
        if self._session is None or self._tail is None or self._closed:
            return
        # However long the caller would wait: what is not there by then never comes.
        timeout = min(timeout, _ON_DISK_S)
        deadline = time.monotonic() + timeout
        while self._tail.advance() < self._session.last_row:
            if time.monotonic() > deadline:
                self._give_up(self._session.last_row, timeout)
            time.sleep(_FLUSH_POLL)

    def _give_up(self, row: int, waited_s: float) -> NoReturn:
        self._closed = True
        if self._opened is not None:
            kill_core(load_wandb(self._opened.log.parent))
        raise RestartExporterError(
            f"W&B: row {row} is not on disk after {seconds(waited_s)}. Is the disk full? Its process is started again."
        )

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Finish the run, uploading what is left.

        Raises:
            RetryableExportError: not within `timeout` seconds; the next start goes on where the server is.
        """
        if self._closed:
            return
        # Before W&B is told: a record that comes while it uploads is one for a new exporter.
        self._closed = True
        if self._opened is None:
            return
        deadline = time.monotonic() + timeout
        finishing = _Finishing(self._opened.run, status)
        finishing.start()
        # In a thread, as `finish` cannot be told when to stop waiting; left behind, it goes on as a daemon.
        finishing.join(timeout)
        with translated(export_error):
            finishing.check(timeout)
        if self._tail is not None:
            _await_the_end(self._tail, deadline)

    @property
    def url(self) -> str | None:
        """The run's page, or the folder of an offline run."""
        if self._opened is None or self._opened.mode == "disabled":
            return None
        return str(self._opened.run.url or self._opened.log.parent)

    @property
    def notice(self) -> str | None:
        """Why the run is offline, if it is; then which names W&B does not take, when the first one has come."""
        if self._renamed is None and self._session is not None and self._session.mapped:
            self._renamed = renamed("wandb", self._session.mapped, f"The config's {NAMES} has")
        return self._renamed or (self._opened.notice if self._opened else None)


def _await_the_end(tail: LogTail, deadline: float) -> None:
    """W&B's process answers before it has written what it answers for.

    Raises:
        RetryableExportError: it is not written by `deadline`, and `wandb sync` would miss it.
    """
    tail.advance()
    while not tail.ended:
        if time.monotonic() > deadline:
            raise RetryableExportError(f"W&B: {str(tail.path)!r} has no end yet, which `wandb sync` needs.")
        time.sleep(_FLUSH_POLL)
        tail.advance()


class _Finishing(threading.Thread):
    """`Run.finish`, which waits for uploads for as long as W&B's settings said at the start."""

    def __init__(self, run: Any, status: RunStatus | None) -> None:
        super().__init__(name="otel-ml-wandb-finish", daemon=True)
        self._run = run
        self._status = status
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            if self._status is None or self._status.status == "running":
                # Only this process ends: not "finished", nor "crashed" some minutes later.
                self._run.mark_preempting()
                self._run.finish(exit_code=1)
            else:
                self._run.finish(exit_code=_EXIT_CODES[self._status.status])
        except Exception as error:  # noqa: BLE001 (raised again by `check`, in the caller's thread)
            self._failure = error

    def check(self, timeout: float) -> None:
        """Raise what `finish` raised, or that it is still running."""
        if self.is_alive():
            raise RetryableExportError(f"W&B: the upload was not finished within {seconds(timeout)}.")
        if self._failure is not None:
            raise self._failure


def _check(options: Options, every: int, names: int, found: Sequence[str]) -> None:
    problems = [*every_problems("wandb", every), *found]
    if not isinstance(names, int) or names < 1:
        problems.append(f"wandb.names: expected a number of metrics from 1, got {names!r}.")
    if options.mode not in list(MODES):  # not a look-up: it may be a list
        problems.append(f"wandb.mode: expected one of {', '.join(MODES)}, got {options.mode!r}.")
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name not in {"tags", "mode"} and value is not None and not isinstance(value, str):
            problems.append(f"wandb.{field.name}: expected text, got {value!r}.")
    if problems:
        raise ConfigError(*problems)


def kill_core(wandb: Any) -> None:
    """Kill this process' `wandb-core`, so that the next `wandb.init` starts another one.

    It serves every W&B run of this process; the others notice and go on from what is stored, too.
    """
    for pid in _children():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "wandb-core":
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(Exception, SystemExit):  # it exits with the code of its process: -9
        wandb.teardown()


def _children() -> Iterator[int]:
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, path.read_text(encoding="ascii").split())
