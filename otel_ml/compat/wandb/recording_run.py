"""`wandb.Run`: a row for each `log()`, and what belongs to the run."""

from __future__ import annotations

import atexit
import glob
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import otel_ml
from otel_ml.compat.tracking.counts import WITHIN, StepCounts, own_axis, whole
from otel_ml.compat.tracking.said import not_kept
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.definitions import Definitions, Metric
from otel_ml.compat.wandb.final_values import Summary
from otel_ml.compat.wandb.media import keep
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.values import are_numbers, parted, plain_numbers
from otel_ml.once import reporter

__all__ = ["Asked", "DisabledRun", "Run"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What `init()` was asked for; `joins` says that the run was begun by somebody else, who ends it."""

    project: str = ""
    entity: str = ""
    group: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    notes: str | None = None
    mode: str = "online"
    resumed: bool = False
    joins: bool = False


F = TypeVar("F", bound=Callable[..., Any])


def _inside(method: F) -> F:
    """Return a method that records into its own run, whichever is current."""

    @wraps(method)
    def inside(run: Run, *args: Any, **kwargs: Any) -> Any:
        with run.use():
            return method(run, *args, **kwargs)

    return inside  # type: ignore[return-value]


class Run:
    """A run with W&B's methods. `log()` counts the steps itself where the program does not."""

    def __init__(
        self, run: otel_ml.Run, config: Config, asked: Asked, first_step: int, on_end: Callable[[Run], None]
    ) -> None:
        self._run = run
        self._asked = asked
        self._on_end = on_end
        self._step = first_step
        self._counts = StepCounts()
        self._definitions = Definitions()
        self._artifacts: list[Artifact] = []
        self._files: Path | None = None
        self._is_over = False
        self.config = config
        self.summary: Summary = Summary(self._write_summary)
        atexit.register(self._last_words)

    def use(self) -> AbstractContextManager[None]:
        """Make it the current run of otel_ml, inside a block."""
        return self._run.use()

    # --- what it is ----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether the run goes on."""
        return self._run.is_active

    @property
    def joins(self) -> bool:
        """Whether somebody else has begun the run, and ends it."""
        return self._asked.joins

    @property
    def id(self) -> str:
        """Of the run; `init(id=…, resume="allow")` continues it."""
        return self._run.id

    @property
    def name(self) -> str:
        """Shown in the backends."""
        return self._run.name

    @property
    def project(self) -> str:
        """The experiment."""
        return self._asked.project or self._run.experiment

    @property
    def entity(self) -> str:
        """As given."""
        return self._asked.entity

    @property
    def path(self) -> str:
        """`entity/project/id`."""
        return "/".join(part for part in (self.entity, self.project, self.id) if part)

    @property
    def group(self) -> str:
        """As given; the tag `group:<name>`."""
        return self._asked.group

    @property
    def job_type(self) -> str:
        """As given; the tag `job_type:<name>`."""
        return self._asked.job_type

    @property
    def tags(self) -> tuple[str, ...]:
        """As given."""
        return self._asked.tags

    @property
    def notes(self) -> str | None:
        """As given."""
        return self._asked.notes

    @property
    def step(self) -> int:
        """The step that the next `log()` counts at."""
        return self._step

    @property
    def resumed(self) -> bool:
        """Whether a run that was there before goes on."""
        return self._asked.resumed

    @property
    def offline(self) -> bool:
        """Whether W&B is not to be reached."""
        return self._asked.mode in {"offline", "dryrun"}

    @property
    def disabled(self) -> bool:
        """Whether nothing is recorded."""
        return False

    @property
    def sweep_id(self) -> str | None:
        """None: sweeps are W&B's own."""
        return None

    @property
    def url(self) -> str | None:
        """Where W&B shows the run, once the exporter `wandb` has started it there."""
        return self._run.urls.get("wandb")

    @property
    def dir(self) -> str:
        """A folder for files of the program; what is there at the end becomes an artifact."""
        if self._files is None:
            self._files = self._folder()
        return str(self._files)

    def get_url(self) -> str | None:
        """Return `url`."""
        return self.url

    def project_name(self) -> str:
        """Return `project`."""
        return self.project

    # --- rows ----------------------------------------------------------------------------------------------------

    @_inside
    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None
    ) -> None:
        """Record a row at `step`, by default at a step of its own; `commit=False` leaves the row open for more.

        A step that goes back is recorded there.
        """
        del sync
        at = self._step if step is None else self._moved_to(step)
        try:
            if self._definitions.metrics or not are_numbers(data.values()):
                self._log_any(data, at)
            else:
                self.summary.observe(data)
                self._counts.log(data, at)
        except Exception as error:  # noqa: BLE001 (the boundary to the user's program and its objects)
            if isinstance(data, Mapping):
                reporter.failed("wandb.log()", error)
            else:
                otel_ml.log(data)  # which says what it expected
        if at == self._step and (commit or (commit is None and step is None)):
            self._step += 1

    def _moved_to(self, step: Any) -> int:
        index = whole(step)
        if index is None:
            not_kept(f"wandb.log(step={step!r:.80})", "a step is a whole number from 0 on; the run's own is used.")
            return self._step
        self._step = max(self._step, index)
        return index

    def _log_any(self, data: Mapping[str, Any], at: int) -> None:
        scalars, others = parted(data)
        at = self._definitions.step_of(scalars, at)
        numbers = plain_numbers(scalars)
        self.summary.observe(numbers)
        if self._definitions.metrics:
            for axis, index, row in self._definitions.rows(scalars):
                if axis is None:
                    self._counts.log(row, at)
                else:
                    self._log_over(axis, index, row)
            self._definitions.observe(numbers)
        else:
            self._counts.log(scalars, at)
        for name, value in others.items():
            keep(name, value, at, self._counts.axis_of(name, at))

    def _log_over(self, step_metric: str, index: int, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            otel_ml.log({name: value}, step=index, axis=own_axis(name, step_metric), within=WITHIN)

    @_inside
    def define_metric(
        self,
        name: str,
        step_metric: Any = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        overwrite: bool | None = None,
        **options: Any,
    ) -> Metric:
        """Draw a metric, or all that match `val/*`, over another one; and keep its `min`, `max`, `mean` at the end."""
        del step_sync, hidden, options
        return self._definitions.define(name, step_metric, summary, overwrite)

    # --- files ---------------------------------------------------------------------------------------------------

    @_inside
    def log_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 (W&B's name)
        aliases: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
    ) -> Artifact:
        """Record an artifact, a file or a folder."""
        del tags
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            path = Path(artifact_or_path)
            artifact = Artifact(name or f"run-{self.id}-{path.name}", type or "file")
            artifact.add_file(path)
        self._artifacts.append(artifact)
        self._keep(artifact, tuple(aliases or ()))
        return artifact

    upsert_artifact = log_artifact
    finish_artifact = log_artifact

    @_inside
    def log_model(self, path: Any, name: str | None = None, aliases: Iterable[str] | None = None) -> Artifact:
        """Record a model's files."""
        return self.log_artifact(path, name or f"run-{self.id}-model", "model", aliases)

    @_inside
    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Record the files that match now."""
        del base_path, policy
        # An absolute pattern, which `Path.glob` refuses, is usual here.
        found = sorted(glob.glob(str(glob_str))) if glob_str is not None else []  # noqa: PTH207
        if not found:
            not_kept(f"wandb.save({str(glob_str)!r})", "no file matches now. Call it once the files are written.")
        for path in found:
            otel_ml.log_artifact(path)
        return found

    def log_code(self, root: Any = ".", name: str | None = None, **options: Any) -> None:
        """Do nothing: the commit and what differs from it are in every run."""
        del root, name, options

    def _keep(self, artifact: Artifact, aliases: tuple[str, ...]) -> None:
        artifact.keep(aliases)

    # --- the rest ------------------------------------------------------------------------------------------------

    @_inside
    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """Record an event `alert`; nobody is notified."""
        del wait_duration
        named = getattr(level, "value", level) or "INFO"
        otel_ml.event("alert", {"title": title, "text": text, "level": str(named)})

    def watch(self, models: Any, *more: Any, **options: Any) -> None:
        """Say that gradients are not watched."""
        del models, more, options
        not_kept("wandb.watch()", "gradients are not recorded by it. Log their norm: log({'grad_norm': …}).")

    def unwatch(self, models: Any = None) -> None:
        """Do nothing."""
        del models

    @_inside
    def mark_preempting(self) -> None:
        """Record an event `preempting`."""
        otel_ml.event("preempting")

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; any exit code but 0 means that it failed."""
        del quiet
        error = SystemExit(exit_code) if exit_code else None
        self.__exit__(type(error) if error else None, error, None)

    join = finish

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._last_words()
        atexit.unregister(self._last_words)
        self._end(kind, error, traceback)
        for artifact in self._artifacts:
            artifact.forget()
        self._on_end(self)

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._asked.joins:
            self._run.__exit__(kind, error, traceback)

    @_inside
    def _last_words(self) -> None:
        """Record what is only known at the end."""
        if self._run.rank == 0 and (values := self._definitions.summaries()):
            self._run.summary(values)
        if self._files is not None and any(self._files.iterdir()):
            otel_ml.log_artifact(self._files, name="files")

    @_inside
    def _write_summary(self, values: Mapping[str, Any]) -> None:
        scalars, others = parted(values)
        if scalars:
            self._run.summary(scalars)
        if others:
            otel_ml.log_params(others, prefix="summary")

    def _folder(self) -> Path:
        if self._run.dir is None:
            return Path(tempfile.mkdtemp(prefix="otel-ml-files-"))
        folder = self._run.dir / "files"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _repr_html_(self) -> str:
        return self._run._repr_html_()

    def __repr__(self) -> str:
        return f"<wandb.Run {self.path} of otel_ml>"


class DisabledRun(Run):
    """The run of `mode="disabled"`: everything is accepted, nothing is recorded."""

    def use(self) -> AbstractContextManager[None]:
        """Do nothing: there is no run of otel_ml."""
        return nullcontext()

    @property
    def disabled(self) -> bool:
        """Always."""
        return True

    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None
    ) -> None:
        """Remember the last values for `summary`."""
        del commit, sync
        self._step = self._step + 1 if step is None else step
        if isinstance(data, Mapping):
            self.summary.observe(data)

    def save(self, glob_str: Any = None, base_path: Any = None, policy: str = "live") -> list[str]:
        """Do nothing."""
        return []

    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """Do nothing."""

    def mark_preempting(self) -> None:
        """Do nothing."""

    def _keep(self, artifact: Artifact, aliases: tuple[str, ...]) -> None:
        """Do nothing."""

    def _write_summary(self, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def _last_words(self) -> None:
        """Do nothing."""

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing."""
