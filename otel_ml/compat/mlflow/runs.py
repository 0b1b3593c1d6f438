"""`mlflow.start_run()` and what surrounds it: the stack of runs of each thread.

There is one run for the whole job, and one of each thread that begins one. A nested run is a part of it: its names
begin with its own name.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml.compat.mlflow.active_run import NOTE, PARENT, RUN_NAME, ActiveRun, now
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.tracking.own_backend import with_own_backend
from otel_ml.compat.tracking.step_axes import StepCounts

__all__ = [
    "ActiveRun",
    "active_run",
    "current",
    "delete_run",
    "disable_system_metrics_logging",
    "enable_system_metrics_logging",
    "end_run",
    "get_artifact_uri",
    "get_parent_run",
    "get_run",
    "get_tracking_uri",
    "is_tracking_uri_set",
    "last_active_run",
    "of_mlflow",
    "restore_run",
    "run_of",
    "set_system_metrics_node_id",
    "set_system_metrics_samples_before_logging",
    "set_system_metrics_sampling_interval",
    "set_tracking_uri",
    "start_run",
]

_URI = "MLFLOW_TRACKING_URI"
_ENDINGS: Mapping[str, type[BaseException]] = {"FAILED": SystemExit, "KILLED": KeyboardInterrupt}


class _OfThread(threading.local):
    """The runs of one thread, as MLflow has them."""

    def __init__(self) -> None:
        self.stack: list[ActiveRun] = []
        self.last: ActiveRun | None = None
        self.counts = StepCounts()
        self.run_id: str | None = None


class _State:
    """What the module's functions act on."""

    def __init__(self) -> None:
        self._here = _OfThread()
        self._lock = threading.Lock()  # of two threads that begin at once the later one has to know of the other's run
        self._begun: list[otel_ml.Run] = []
        self._known: dict[str, ActiveRun] = {}
        self.experiment: str | None = None
        self.uri = ""
        self._exporters: tuple[str, ...] | None = None
        self._variables: Mapping[str, str] = {}
        self._set = RunEnvironment()

    @property
    def stack(self) -> list[ActiveRun]:
        """The runs of this thread that are open, the innermost last; of one that has ended otherwise none is."""
        stack = self._here.stack
        if stack and not stack[0].run.is_active:
            stack.clear()
        return stack

    @property
    def last(self) -> ActiveRun | None:
        """The run that this thread has begun last."""
        return self._here.last

    @property
    def counts(self) -> StepCounts:
        """The steps that this thread's run counts itself."""
        return self._here.counts

    def known(self, run_id: str) -> ActiveRun | None:
        """The run of that id that this process has begun, also when it has ended."""
        return self._known.get(run_id)

    def begin(
        self,
        run_id: str | None,
        name: str | None,
        tags: Mapping[str, Any],
        notes: str | None,
        experiment_id: str | None = None,
    ) -> ActiveRun:
        """Begin a run of this thread, or join the one that the program itself has begun."""
        with self._lock:
            run, is_owner = self._run_for(run_id, name, tags, notes, experiment_id)
        return self.join(run, "", is_owner=is_owner, tags=tags)

    def _run_for(
        self,
        run_id: str | None,
        name: str | None,
        tags: Mapping[str, Any],
        notes: str | None,
        experiment_id: str | None,
    ) -> tuple[otel_ml.Run, bool]:
        """Return the run, and whether it is begun here."""
        self._begun = [run for run in self._begun if run.is_active]
        session = RUNTIME.current
        if not RUNTIME.is_chosen or (session is not None and session.run in self._begun):
            experiment = _name_of(experiment_id) or self.experiment or _experiment_of_environment()
            chosen = run_id or os.environ.get("MLFLOW_RUN_ID") or None
            labels = [f"{key}:{value}" for key, value in tags.items() if key not in {NOTE, RUN_NAME}]
            self._set.set(self._variables)
            begin = RUNTIME.begin if self._begun else RUNTIME.init
            run = begin(
                {
                    "experiment": experiment,
                    "name": name,
                    "id": chosen,
                    "tags": labels,
                    "notes": notes,
                    "exporters": self._chosen_exporters(),
                }
            )
            self._begun.append(run)
            return run, True
        return otel_ml.init(), False

    def _chosen_exporters(self) -> tuple[str, ...] | None:
        if self._exporters is not None or self.where is None:
            return self._exporters
        return with_own_backend("mlflow")

    def join(
        self, run: otel_ml.Run, prefix: str, *, is_owner: bool = False, tags: Mapping[str, Any] | None = None
    ) -> ActiveRun:
        """Let the module's functions record into a run that is active, under names that begin with `prefix`."""
        if run.id != self._here.run_id:
            self._here.run_id, self._here.stack = run.id, []
            self.counts.forget()
        return self._push(ActiveRun(run, run.id, run.name, prefix, is_owner=is_owner, tags=tags or {}, end=self.end))

    def nest(self, name: str | None, tags: Mapping[str, Any]) -> ActiveRun:
        """Begin a part of the run."""
        parent = self.stack[-1]
        part = name or f"run-{secrets.token_hex(4)}"
        prefix = f"{parent.prefix}{part}/"
        run_id = f"{parent.info.run_id}/{part}"
        tags = {**tags, PARENT: parent.info.run_id}
        active = ActiveRun(parent.run, run_id, part, prefix, is_owner=False, tags=tags, end=self.end)
        active.parent = parent
        return self._push(active)

    def end(
        self, active: ActiveRun, kind: type[BaseException] | None, error: BaseException | None, status: str = ""
    ) -> None:
        """End a run and what was begun inside it; without `status` it has failed where there is an error."""
        while active in self.stack:
            ended = self.stack.pop()
            ended.info.status = status or ("FINISHED" if kind is None else "FAILED")
            ended.info.end_time = now()
        if active.is_owner:
            active.run.__exit__(kind, error, None)
            if not any(run.is_active for run in self._begun):
                self._set.undo()

    def write_to(self, exporters: tuple[str, ...] | None, variables: Mapping[str, str]) -> None:
        """Have runs that begin from now on written by `exporters`, which are told where by `variables`."""
        self._exporters, self._variables = exporters, variables

    @property
    def where(self) -> str | None:
        """Address of the server or store that the exporter `mlflow` is told."""
        return self._variables.get(_URI) or os.environ.get(_URI)

    def _push(self, active: ActiveRun) -> ActiveRun:
        self.stack.append(active)
        before = self._known.get(active.info.run_id)
        if before is not None and not active.prefix:
            active.goes_on_from(before)
        self._here.last = self._known[active.info.run_id] = active
        return active


STATE = _State()


def current() -> ActiveRun:
    """Return the active run; begins one where there is none, as MLflow does."""
    if STATE.stack:
        return STATE.stack[-1]
    return STATE.begin(None, None, {}, None)


def run_of(call: str, run_id: str | None) -> AbstractContextManager[ActiveRun]:
    """Return a block that records into the run that is named, also another thread's; an unknown one is said."""
    named = None if run_id is None else STATE.known(run_id)
    if named is not None and named.run.is_active:
        return _inside(named)
    if run_id is not None:
        not_kept(f"mlflow.{call}(run_id={run_id!r})", "it is recorded in the active run.")
    return nullcontext(current())


@contextmanager
def _inside(active: ActiveRun) -> Iterator[ActiveRun]:
    with active.run.use():
        yield active


def start_run(
    run_id: str | None = None,
    experiment_id: str | None = None,
    run_name: str | None = None,
    nested: bool = False,
    parent_run_id: str | None = None,
    tags: Mapping[str, Any] | None = None,
    description: str | None = None,
    log_system_metrics: bool | None = None,
) -> ActiveRun:
    """Begin a run; with `nested`, a part of the active one whose names begin with `run_name`.

    The tags `mlflow.runName` and `mlflow.note.content` are its name and its description.
    """
    if log_system_metrics:
        enable_system_metrics_logging()
    given = dict(tags or {})
    notes, name = _note(description, given), run_name or given.get(RUN_NAME)
    if not STATE.stack:
        if parent_run_id:
            not_kept(f"mlflow.start_run(parent_run_id={parent_run_id!r})", "it is not active; this run has no parent.")
        return STATE.begin(run_id, name, given, notes, _experiment_id(experiment_id))
    if not (nested or parent_run_id):
        wrong = f"Exception: Run with UUID {STATE.stack[-1].info.run_id} is already active"
        not_kept("mlflow.start_run()", f"{wrong}. It goes on; call end_run() first, or pass nested=True.")
        return STATE.stack[-1]
    active = STATE.nest(name, given)
    if given:
        otel_ml.log_params(given, prefix=f"{active.prefix}tags")
    return active


def _note(description: str | None, tags: dict[str, Any]) -> str | None:
    """Return the description of a run, which its tags then have, as in MLflow."""
    if description is None:
        return None if tags.get(NOTE) is None else str(tags[NOTE])
    if tags.get(NOTE) is not None:
        wrong = f"MlflowException: Description is already set via the tag {NOTE} in tags"
        not_kept(f"mlflow.start_run(description={description!r:.40})", f"{wrong}. The description counts.")
    tags[NOTE] = description
    return description


def _experiment_id(given: Any) -> str | None:
    if given is None or isinstance(given, (str, int)):
        return None if given is None else str(given)
    wrong = f"MlflowException: Invalid experiment id: {given!r:.80}"
    not_kept("mlflow.start_run(experiment_id=…)", f"{wrong}. The run is in the experiment that set_experiment() named.")
    return None


def end_run(status: str = "FINISHED") -> None:
    """End the innermost run; `FAILED` and `KILLED` are its status in every backend that knows one."""
    if not STATE.stack:
        return
    ending = str(status).upper()
    kind = _ENDINGS.get(ending)
    STATE.end(STATE.stack[-1], kind, kind(1) if kind is not None else None, ending)


def active_run() -> ActiveRun | None:
    """Return the innermost run, or None."""
    return STATE.stack[-1] if STATE.stack else None


def last_active_run() -> ActiveRun | None:
    """Return the run begun last, also when it has ended."""
    return STATE.last


def get_run(run_id: str) -> Any:
    """Return a run that this process has begun, with what it has recorded; others are read from MLflow by its package.

    Raises:
        ValueError: this process has begun none of that id, and the package `mlflow` is not installed.
        MlflowException: MLflow has none, either.
    """
    return STATE.known(run_id) or _of_the_store("get_run", run_id)


def get_parent_run(run_id: str) -> Any:
    """Return the run that a nested one is a part of, or None.

    Raises:
        ValueError, MlflowException: as `get_run()`.
    """
    found = STATE.known(run_id)
    return found.parent if found is not None else _of_the_store("get_parent_run", run_id)


def _of_the_store(call: str, run_id: str) -> Any:
    if find_spec("mlflow") is None:
        raise ValueError(f"run {run_id!r} was not begun here. MLflow's are read by the package 'mlflow'.")
    return of_mlflow(call, is_of_the_server=True)(run_id)


def of_mlflow(name: str, *, is_of_the_server: bool) -> Any:
    """Return what MLflow's own package calls so; it asks where `set_tracking_uri()` says.

    Raises:
        AttributeError: there is no such name, or the package is not installed.
    """
    found = name_of_the_original("mlflow", name, is_of_the_server=is_of_the_server)
    if STATE.uri:
        name_of_the_original("mlflow", "set_tracking_uri", is_of_the_server=True)(STATE.uri)
    return found


def set_tracking_uri(uri: Any) -> None:
    """Have runs that begin from now on written there, where the job does not name its exporters; else say so."""
    STATE.uri = str(uri)
    exporters = with_own_backend("mlflow") if STATE.uri else None
    if exporters is not None:
        STATE.write_to(exporters, {_URI: STATE.uri})
    elif STATE.uri != STATE.where:
        not_kept(
            f"mlflow.set_tracking_uri({STATE.uri!r})",
            "set MLFLOW_TRACKING_URI where the job starts; the exporter 'mlflow' reads it.",
        )


def get_tracking_uri() -> str:
    """Return the address that was set, or that of the environment."""
    return STATE.uri or STATE.where or ""


def is_tracking_uri_set() -> bool:
    """Whether `set_tracking_uri()` or `MLFLOW_TRACKING_URI` says one."""
    return bool(STATE.uri or STATE.where)


def get_artifact_uri(artifact_path: str | None = None) -> str:
    """Return where the run's artifacts are, as far as this process knows."""
    uri = str(current().info.artifact_uri)
    return f"{uri}/{artifact_path}" if artifact_path else uri


def enable_system_metrics_logging() -> None:
    """Say where they come from."""
    not_kept("mlflow.enable_system_metrics_logging()", "use `otel_ml.diagnostics`.")


def disable_system_metrics_logging() -> None:
    """Do nothing: none are recorded by this module."""


def set_system_metrics_sampling_interval(interval: float | None) -> None:
    """Say where they come from."""
    not_kept(f"mlflow.set_system_metrics_sampling_interval({interval!r})", "use `otel_ml.diagnostics`.")


def set_system_metrics_samples_before_logging(samples: int | None) -> None:
    """Say where they come from."""
    not_kept(f"mlflow.set_system_metrics_samples_before_logging({samples!r})", "use `otel_ml.diagnostics`.")


def set_system_metrics_node_id(node_id: str | None) -> None:
    """Do nothing: every process says its host."""
    del node_id


def delete_run(run_id: str) -> None:
    """Say that nothing is deleted."""
    not_kept(f"mlflow.delete_run({run_id!r})", "nothing is deleted. Use the package 'mlflow'.")


def restore_run(run_id: str) -> None:
    """Do nothing: nothing was deleted."""
    del run_id


def _experiment_of_environment() -> str | None:
    named = os.environ.get("MLFLOW_EXPERIMENT_NAME")
    return named or _name_of(os.environ.get("MLFLOW_EXPERIMENT_ID"))


def _name_of(experiment_id: str | None) -> str | None:
    """Return the experiment of an id, which is its name; MLflow's own default is `0`."""
    return None if experiment_id in {None, "", "0"} else str(experiment_id)
