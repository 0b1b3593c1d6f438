"""A writer from its beginning to its end: its folder, its run, and the step of a call."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tensorboard.bins import edges_of_tensorboard
from otel_ml.compat.tensorboard.embedding import Projector
from otel_ml.compat.tensorboard.numbers import step_of
from otel_ml.compat.tensorboard.open_writers import WRITERS
from otel_ml.compat.tracking.not_kept import is_given, not_kept
from otel_ml.compat.tracking.step_axes import whole
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable

__all__ = ["FileWriter", "RunWriter"]

_Writer = TypeVar("_Writer", bound="RunWriter")


class RunWriter:
    """What every writer does, whatever it records. Without `global_step`, each tag counts its own calls."""

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        logdir: Any = None,
        comet_config: Any = None,
        **more: Any,
    ) -> None:
        self.purge_step: int | None = purge_step
        self.max_queue: int = max_queue
        self.flush_secs: int = flush_secs
        self.filename_suffix: str = filename_suffix
        given = logdir if log_dir is None else log_dir
        # As it was given, such as a `Path`: programs make paths of it.
        self.log_dir: Any = given or str(_usual_folder(comment))
        # That of a folder by date would be another one in each rank.
        self.run_name: str = Path(self.log_dir).name if given else f"run{comment}"
        for key in more:
            not_kept(f"SummaryWriter({key}=…)", "it means nothing to otel_ml.")
        if is_given(comet_config) and comet_config != {"disabled": True}:
            not_kept("SummaryWriter(comet_config=…)", "there is no exporter for Comet.")
        if purge_step is not None:
            not_kept("SummaryWriter(purge_step=…)", "a step that is done again is told apart by its attempt.")
        self._write_to(FileWriter(str(self.log_dir)))
        self._is_open = False
        self._run_id: str | None = None
        self._usual_step: int | None = None
        if write_to_disk:
            _make_folder(str(self.log_dir))
            self._enter()
        else:
            self._be_silent()

    def _be_silent(self) -> None:
        """Take every call and record nothing: scripts ask for it on all ranks but one."""
        # Attributes of the object stand before the methods of its class, also of one that the program derives.
        for name in dir(self):
            if name.startswith(("add_", "export_")):
                setattr(self, name, _nothing)

    def _enter(self) -> None:
        # A writer that was closed and is used again goes on in its run, which its close() may have ended.
        self._run, self._prefix = WRITERS.enter(self, self._run_id)
        self._run_id = self._run.id
        self._is_open = True
        self._write_to(FileWriter(str(self.log_dir)))

    def _write_to(self, writer: FileWriter | None) -> None:
        self.file_writer: FileWriter | None = writer
        # torch has one more for each tag of add_scalars(), under its folder; programs look at the one under `log_dir`.
        self.all_writers: dict[str, FileWriter] | None = None if writer is None else {str(self.log_dir): writer}

    def _get_file_writer(self) -> FileWriter | None:
        """Return `file_writer`, of a closed writer a new one: not public in torch, and asked for by many programs."""
        if self.file_writer is None:
            self._enter()
        return self.file_writer

    def _at(self, tag: Any, global_step: Any, walltime: Any) -> tuple[str, int]:
        """Return the name and the step of a call."""
        if not self._is_open:
            self._enter()  # as the original, which writes on in the same folder
        if walltime is not None:
            not_kept(f"walltime= of {tag!r}", "a value has the time at which it is recorded.")
        global_step = self._usual_step if global_step is None else global_step
        name = f"{self._prefix}{tag}"
        step = None if global_step is None else _step(global_step, name)
        return name, WRITERS.counts.next(name) if step is None else step

    def _beside(self, tag: Any, global_step: Any, walltime: Any) -> tuple[str, dict[str, Any]]:
        """Return the name, and step and axis of what is not a scalar."""
        name, step = self._at(tag, global_step, walltime)
        return name, {"step": step, "axis": WRITERS.counts.axis_beside(name)}

    @cached_property
    def _projector(self) -> Projector:
        return Projector(str(self.log_dir))

    # Attributes of the originals, which a program or a class of its own may set.

    @cached_property
    def logdir(self) -> Any:
        """`log_dir`, as tensorboardX calls it."""
        return self.log_dir

    @cached_property
    def default_bins(self) -> list[float]:
        """The edges of the originals' histograms, which are theirs alone: see `add_histogram()`."""
        return edges_of_tensorboard()

    def get_logdir(self) -> Any:
        """Return `log_dir`, a folder for files of the program; the run's own folder is printed when it begins."""
        return self.log_dir

    @contextmanager
    def use_metadata(
        self: _Writer, *, global_step: int | None = None, walltime: float | None = None
    ) -> Iterator[_Writer]:
        """Record inside the block at `global_step`, where a call says none; the block has the writer."""
        if walltime is not None:
            not_kept("SummaryWriter.use_metadata(walltime=…)", "a value has the time at which it is recorded.")
        before, self._usual_step = self._usual_step, global_step
        try:
            yield self
        finally:
            self._usual_step = before

    def flush(self) -> None:
        """Return at once: what is recorded is on disk within 100 ms and sent each second."""

    def close(self) -> None:
        """Close this writer; the last one ends the run."""
        self.__exit__(None, None, None)

    def __enter__(self: _Writer) -> _Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_open:
            self._is_open = False
            self._write_to(None)
            WRITERS.leave(self, kind, error)


def _step(given: Any, name: str) -> int | None:
    """Return the step that is given, and say where it is another; None where it is not one."""
    step = step_of(given)
    of = f"of {name!r}"
    if step is None:
        not_kept(
            f"global_step={safe_repr(given)} {of}", "a step is a whole number from 0 on; the next one is used.", of
        )
    elif whole(given) is None and not isinstance(given, str):
        last = "of one rank's values at a step the last counts"
        not_kept(f"global_step={safe_repr(given)} {of}", f"it is cut to {step}, as TensorBoard does; {last}.", of)
    return step


def _nothing(*arguments: Any, **options: Any) -> None:
    del arguments, options


def _usual_folder(comment: str) -> Path:
    now = datetime.now().strftime("%b%d_%H-%M-%S")  # noqa: DTZ005 (torch's name, which people look for by local time)
    return Path("runs") / f"{now}_{socket.gethostname()}{comment}"


@reports_unrecordable
def _make_folder(path: str) -> None:
    """Make the folder of a writer: programs put files of their own beside the event files."""
    if "://" not in path:
        Path(path).mkdir(parents=True, exist_ok=True)


class FileWriter:
    """Takes what TensorBoard's takes; messages of its own are not recorded, which is reported."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir

    def get_logdir(self) -> str:
        """Return the folder of the writer."""
        return self._log_dir

    def add_summary(self, summary: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Say that it is not recorded."""
        del summary, global_step, walltime
        _not_recorded("add_summary")

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """Say that it is not recorded."""
        del event, step, walltime
        _not_recorded("add_event")

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """Say that it is not recorded."""
        del graph_profile, walltime
        _not_recorded("add_graph")

    def flush(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Do nothing: `SummaryWriter.close()` ends the run."""

    def reopen(self) -> None:
        """Do nothing: the next call of the writer goes on."""


def _not_recorded(call: str) -> None:
    not_kept(
        f"SummaryWriter.file_writer.{call}()",
        "messages of TensorBoard's own are not recorded. Use the writer's methods, such as add_scalar() and "
        "add_hparams().",
    )
