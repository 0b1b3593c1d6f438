"""`wandb.Run`: a row for each `log()`, and what belongs to the run."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.compat.tracking.not_kept import is_given, not_kept, options_not_kept
from otel_ml.compat.tracking.step_axes import WITHIN, StepCounts, own_axis, whole
from otel_ml.compat.tracking.unrecordable_arguments import report_unrecordable
from otel_ml.compat.wandb.alert_level import level_of
from otel_ml.compat.wandb.artifact import Artifact, used
from otel_ml.compat.wandb.code_files import Chooses, code_of, is_code, is_of_a_run
from otel_ml.compat.wandb.definitions import Definitions, Metric
from otel_ml.compat.wandb.final_values import Summary
from otel_ml.compat.wandb.media import keep
from otel_ml.compat.wandb.media_of_summary import keep_media
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.run_facts import InitArguments, RunFacts
from otel_ml.compat.wandb.saved_files import SavedFiles
from otel_ml.compat.wandb.values import is_plain, named, parted, plain_numbers, texts_and_lists
from otel_ml.compat.wandb.watching import Watched
from otel_ml.wire.summary_texts import SUMMARY_PARAM

__all__ = ["Run"]

_SET_AS = {"_describe_anew": "name", "_write_summary": "summary"}
"""Methods that are called where the program sets something, and what."""

F = TypeVar("F", bound=Callable[..., Any])


def _inside(method: F) -> F:
    """Return a method that records into its own run, whichever is current; after its end W&B's error is said."""
    called = _SET_AS.get(method.__name__, f"{method.__name__}()")

    @wraps(method)
    def inside(run: Run, *args: Any, **kwargs: Any) -> Any:
        # Said, and done all the same: otel_ml drops what is recorded after the end of a run, and counts it.
        if run._is_over:  # noqa: SLF001 (its own method)
            not_kept(f"run.{called}", f"UsageError: Run ({run.id}) is finished.")
        with run.use():
            return method(run, *args, **kwargs)

    return inside  # type: ignore[return-value]


class Run(RunFacts):
    """A run with W&B's methods. `log()` counts the steps itself where the program does not."""

    def __init__(
        self, run: otel_ml.Run, config: Config, asked: InitArguments, first_step: int, on_end: Callable[[Run], None]
    ) -> None:
        self._run = run
        self._asked = asked
        self._on_end = on_end
        self._step = first_step
        self._first_step = first_step
        self._began_at = time.time()
        self._counts = StepCounts()
        self._definitions = Definitions()
        self._artifacts: list[Artifact] = []
        self._files: Path | None = None
        self._saved = SavedFiles()
        self._watched = Watched(partial(self.log, commit=False))  # not a lambda: a disabled run is pickled
        self._is_over = False
        self.config = config
        self.summary: Summary = Summary(self._write_summary, self._so_far)
        atexit.register(self._last_words)

    def use(self) -> AbstractContextManager[None]:
        """Make it the current run of otel_ml, inside a block."""
        return self._run.use()

    @_inside
    def _describe_anew(self, **said: Any) -> None:
        """Have the backends told, as far as rank 0 says so: they add tags to those there are."""
        session = RUNTIME.current
        if session is not None:
            others = [tag for tag in session.config.tags if tag not in self._asked.tags]
            session.describe(**{**said, "tags": (*said.get("tags", self._asked.tags), *others)})
        super()._describe_anew(**said)

    @property
    def next_step(self) -> int:
        """The first step after all rows, also after one that was left open."""
        return max(self._step, self._counts.latest + 1)

    @_inside
    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None
    ) -> None:
        """Record a row at `step`, by default at a step of its own; `commit=False` leaves the row open for more.

        A step that goes back is recorded there.
        """
        del sync
        if not isinstance(data, Mapping):
            # No row: the next one is at the step of this one.
            not_kept(f"wandb.log({safe_repr(data)})", "TypeError: wandb.log must be passed a dictionary.")
            return
        ends_row = step is None if commit is None else is_given(commit)
        at = self._step if step is None else self._moved_to(step)
        # Before anything is recorded: a thread that logs meanwhile has a row of its own.
        if ends_row and at == self._step:
            self._step = at + 1
        try:
            if self._definitions.metrics or not is_plain(data):
                self._log_any(named(data), at)
            else:
                self.summary.observe(data)
                self._definitions.count(data)
                self._counts.log(data, at)
        except Exception as error:  # noqa: BLE001 (the boundary to the user's program and its objects)
            report_unrecordable("wandb.log", error)

    def _moved_to(self, step: Any) -> int:
        index = whole(step)
        if index is None:
            wrong = "TypeError: a step is a whole number from 0 on"
            not_kept(f"wandb.log(step={safe_repr(step)})", f"{wrong}; the run's own is used.")
            return self._step
        self._step = max(self._step, index)
        return index

    def _log_any(self, data: Mapping[str, Any], of_row: int) -> None:
        scalars, others = parted(data)
        at = self._definitions.step_of(scalars, of_row)
        numbers = plain_numbers(scalars)
        self._definitions.show(self.summary, {**numbers, **texts_and_lists(others)})
        if self._definitions.metrics:
            for axis, index, row in self._definitions.rows(scalars, of_row):
                if axis is None:
                    self._counts.log(row, at)
                else:
                    self._log_over(axis, index, row)
            self.summary.observe(self._definitions.observe(numbers))
        else:
            self._definitions.count(numbers)
            self._counts.log(scalars, at)
        for name, value in others.items():
            keep(name, value, at, self._counts.axis_beside(name))

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
        goal: str | None = None,
    ) -> Metric:
        """Draw a metric, or all that match `val/*`, over another one; and keep its `min`, `max`, `mean` at the end.

        `summary="best"` keeps the smallest value, with `goal="maximize"` the largest.
        """
        said = self._definitions.define(name, step_metric, summary, overwrite, goal, step_sync=step_sync, hidden=hidden)
        self._definitions.show_defined(self.summary, said.name)
        if params := self._definitions.for_backends(said):
            otel_ml.log_params(params)
        return said

    @_inside
    def log_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 (W&B's name)
        aliases: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
    ) -> Artifact:
        """Record an artifact, a file, a folder, or an address such as `s3://bucket/weights`."""
        options_not_kept("run.log_artifact", "an artifact has aliases, and no tags.", tags=tags)
        artifact = artifact_or_path
        if not isinstance(artifact, Artifact):
            path = Path(artifact_or_path)
            artifact = Artifact(name or f"run-{self.id}-{path.name}", type or "file")
            artifact.add_path(artifact_or_path)
        self._artifacts.append(artifact)
        self._keep(artifact, tuple(aliases or ()))
        return artifact

    def upsert_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,  # noqa: A002 (W&B's name)
        aliases: Iterable[str] | None = None,
        distributed_id: str | None = None,
    ) -> Artifact:
        """Record what this process adds to an artifact."""
        del distributed_id  # of several processes each records its files under the one name
        return self.log_artifact(artifact_or_path, name, type, aliases)

    finish_artifact = upsert_artifact

    @_inside
    def use_artifact(
        self,
        artifact_or_name: Any,
        type: str | None = None,  # noqa: A002 (W&B's name)
        aliases: Iterable[str] | None = None,
        use_as: str | None = None,
    ) -> Any:
        """Return an artifact that this run has logged, or W&B's own by its package; what is used is a parameter.

        Raises:
            CommError: the package `wandb` is not installed, or the run is offline.
        """
        del aliases
        found = used(artifact_or_name, self._artifacts, type, is_offline=self.offline)
        otel_ml.log_params({use_as or found.name: found.type}, prefix="used_artifacts")
        return found

    def use_model(self, name: str) -> str:
        """Return the path of a model's file, or of its folder where there are several.

        Raises:
            CommError: as `use_artifact()`.
        """
        folder = Path(self.use_artifact(name, "model").download())
        files = [path for path in folder.rglob("*") if path.is_file()]
        return str(files[0] if len(files) == 1 else folder)

    def link_artifact(self, artifact: Any, target_path: str, aliases: Iterable[str] | None = None) -> Any:
        """Record the artifact; a registry is W&B's own."""
        not_kept(f"run.link_artifact({target_path!r})", "the artifact is recorded. Link it where W&B shows it.")
        if artifact not in self._artifacts:
            self.log_artifact(artifact, aliases=aliases)
        return artifact

    def link_model(
        self, path: Any, registered_model_name: str, name: str | None = None, aliases: Iterable[str] | None = None
    ) -> Artifact:
        """Record the model; a registry is W&B's own."""
        not_kept(f"run.link_model({registered_model_name!r})", "the model is recorded. Link it where W&B shows it.")
        return self.log_model(path, name, aliases)

    @_inside
    def log_model(self, path: Any, name: str | None = None, aliases: Iterable[str] | None = None) -> Artifact:
        """Record a model's files."""
        return self.log_artifact(path, name, "model", aliases)

    @_inside
    def save(
        self,
        glob_str: Any = None,
        base_path: Any = None,
        policy: str = "live",
        glob: bool = True,
    ) -> list[str]:
        """Record the files that match now, under their paths below `base_path`; with `glob=False` the one of that name.

        With the policies `live` and `end` those that have changed by the end of the run are recorded again.
        """
        return self._saved.save(glob_str, base_path, policy, is_pattern=glob)

    @_inside
    def log_code(
        self,
        root: Any = ".",
        name: str | None = None,
        include_fn: Chooses = is_code,
        exclude_fn: Chooses = is_of_a_run,
    ) -> Artifact | None:
        """Record the code below a folder, as an artifact that is returned; None where there is none.

        Each run has the commit and what differs from it; this is for code that git does not have.
        """
        artifact = code_of(self.project, root, name, include_fn, exclude_fn)
        return None if artifact is None else self.log_artifact(artifact)

    def _keep(self, artifact: Artifact, aliases: tuple[str, ...]) -> None:
        artifact.keep(aliases)

    def restore(self, name: str, run_path: str | None = None, replace: bool = False, root: str | None = None) -> None:
        """Return None, as W&B does for a file that it does not have."""
        del run_path, replace, root
        not_kept(f"wandb.restore({name!r})", "nothing is downloaded. Use the package 'wandb' or the run's folder.")

    @_inside
    def write_logs(self, text: str) -> None:
        """Record a text `logs`."""
        otel_ml.log_text("logs", text)

    def pin_config_keys(self, keys: Iterable[str] = ()) -> None:
        """Say that a layout of W&B's pages is not kept."""
        not_kept(f"run.pin_config_keys({list(keys)!r:.80})", "the parameters are recorded, which are pinned is not.")

    @_inside
    def alert(self, title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """Record an event `alert`; nobody is notified."""
        del wait_duration
        said = {"title": title, "text": text, "level": level_of(level)}
        otel_ml.event("alert", {key: text_of(value) for key, value in said.items()})

    @_inside
    def watch(
        self,
        models: Any,
        criterion: Any = None,
        log: str | None = "gradients",
        log_freq: int = 1000,
        idx: int | None = None,
        log_graph: bool = False,
    ) -> list[Any]:
        """Record how the gradients, the parameters or both (`all`) of torch models are distributed, on rank 0.

        `gradients/<name>` and `parameters/<name>` of every `log_freq`-th pass are in the row that is open. Returns no
        graphs: with `log_graph` a model is kept as a text.
        """
        del criterion
        if self._run.rank == 0:
            self._watched.watch(models, log, log_freq, idx, log_graph=log_graph)
        return []

    def unwatch(self, models: Any = None) -> None:
        """Look at the gradients of these models no longer, or of all."""
        self._watched.unwatch(models)

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
        self._last_words()
        # Behind the last words, which would be said to be those of a run that is over, and before the end, in which
        # other threads may still log.
        self._is_over = True
        self._watched.unwatch()
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
        self._saved.save_again()
        if self._files is not None and any(self._files.iterdir()):
            otel_ml.log_artifact(self._files, name="files")

    @_inside
    def _write_summary(self, values: Mapping[str, Any]) -> None:
        scalars, rest = parted(values)
        if scalars:
            self._run.summary(scalars)
        if others := keep_media(rest, self._counts):
            otel_ml.log_params(others, prefix=SUMMARY_PARAM)

    def _so_far(self) -> dict[str, float]:
        """Return what W&B's summary says of the run itself."""
        now = time.time()
        said = {"_runtime": now - self._began_at, "_timestamp": now}
        return {**said, "_step": self._counts.latest} if self._counts.latest >= 0 else said

    def __deepcopy__(self, memo: Any) -> Run:
        """Return the run itself, as W&B does: what holds it is copied with the program's own objects."""
        del memo
        return self
