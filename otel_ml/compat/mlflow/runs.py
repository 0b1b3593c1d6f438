"""`mlflow.start_run()` and what surrounds it: the stack of runs of each thread.

There is one run for the whole job, and one of each thread that begins one. A nested run is a part of it: its names
begin with its own name.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace, TracebackType
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml.compat.tracking.counts import StepCounts
from otel_ml.compat.tracking.said import not_kept

__all__ = [
    "ActiveRun",
    "active_run",
    "create_experiment",
    "current",
    "disable_system_metrics_logging",
    "enable_system_metrics_logging",
    "end_run",
    "get_artifact_uri",
    "get_experiment_by_name",
    "get_tracking_uri",
    "last_active_run",
    "set_experiment",
    "set_tracking_uri",
    "start_run",
]

_URI = "MLFLOW_TRACKING_URI"
_ENDINGS: Mapping[str, type[BaseException]] = {"FAILED": SystemExit, "KILLED": KeyboardInterrupt}


class ActiveRun:
    """A run of MLflow's: `info`, `data`, and a context manager that ends it.

    Attributes:
        prefix: what names recorded in it begin with: empty, or a nested run's own.
        is_owner: whether ending it ends the run of the process.
    """

    def __init__(self, run: otel_ml.Run, run_id: str, name: str, prefix: str, *, is_owner: bool) -> None:
        self.info: SimpleNamespace = SimpleNamespace(
            run_id=run_id,
            run_uuid=run_id,
            run_name=name,
            experiment_id=run.experiment,
            status="RUNNING",
            start_time=int(time.time() * 1000),
            artifact_uri=str(run.dir / "artifacts") if run.dir is not None else "",
        )
        self.data: SimpleNamespace = SimpleNamespace(params={}, metrics={}, tags={})
        self.run = run
        self.prefix = prefix
        self.is_owner = is_owner

    def __enter__(self) -> ActiveRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        STATE.end(self, kind, error)


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

    def begin(self, run_id: str | None, name: str | None, tags: Mapping[str, Any], notes: str | None) -> ActiveRun:
        """Begin a run of this thread, or join the one that the program itself has begun."""
        with self._lock:
            run, is_owner = self._run_for(run_id, name, tags, notes)
        return self.join(run, "", is_owner=is_owner)

    def _run_for(
        self, run_id: str | None, name: str | None, tags: Mapping[str, Any], notes: str | None
    ) -> tuple[otel_ml.Run, bool]:
        """Return the run, and whether it is begun here."""
        self._begun = [run for run in self._begun if run.is_active]
        session = RUNTIME.current
        if not RUNTIME.is_chosen or (session is not None and session.run in self._begun):
            experiment = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or None
            chosen = run_id or os.environ.get("MLFLOW_RUN_ID") or None
            labels = [f"{key}:{value}" for key, value in tags.items()]
            self._set.set(self._variables)
            begin = RUNTIME.begin if self._begun else RUNTIME.init
            run = begin(
                {
                    "experiment": experiment,
                    "name": name,
                    "id": chosen,
                    "tags": labels,
                    "notes": notes,
                    "exporters": self._exporters,
                }
            )
            self._begun.append(run)
            return run, True
        return otel_ml.init(), False

    def join(self, run: otel_ml.Run, prefix: str, *, is_owner: bool = False) -> ActiveRun:
        """Let the module's functions record into a run that is active, under names that begin with `prefix`."""
        if run.id != self._here.run_id:
            self._here.run_id, self._here.stack = run.id, []
            self.counts.forget()
        return self._push(ActiveRun(run, run.id, run.name, prefix, is_owner=is_owner))

    def nest(self, name: str | None) -> ActiveRun:
        """Begin a part of the run."""
        parent = self.stack[-1]
        part = name or f"run-{secrets.token_hex(4)}"
        prefix = f"{parent.prefix}{part}/"
        return self._push(ActiveRun(parent.run, f"{parent.info.run_id}/{part}", part, prefix, is_owner=False))

    def end(self, active: ActiveRun, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """End a run and what was begun inside it."""
        while active in self.stack:
            ended = self.stack.pop()
            ended.info.status = "FINISHED" if kind is None else "FAILED"
        if active.is_owner:
            active.run.__exit__(kind, error, None)
            if not any(run.is_active for run in self._begun):
                self._set.undo()

    def write_to(self, exporters: tuple[str, ...], variables: Mapping[str, str]) -> None:
        """Have runs that begin from now on written by `exporters`, which are told where by `variables`."""
        self._exporters, self._variables = exporters, variables

    @property
    def where(self) -> str | None:
        """Address of the server or store that the exporter `mlflow` is told."""
        return self._variables.get(_URI) or os.environ.get(_URI)

    def _push(self, active: ActiveRun) -> ActiveRun:
        self.stack.append(active)
        self._here.last = active
        return active


STATE = _State()


def current() -> ActiveRun:
    """Return the active run; begins one where there is none, as MLflow does."""
    if STATE.stack:
        return STATE.stack[-1]
    return STATE.begin(None, None, {}, None)


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
    """Begin a run; with `nested`, a part of the active one whose names begin with `run_name`."""
    del experiment_id, log_system_metrics
    if STATE.stack:
        if not (nested or parent_run_id):
            not_kept("mlflow.start_run()", "a run is active. It goes on; call end_run() first, or pass nested=True.")
            return STATE.stack[-1]
        active = STATE.nest(run_name)
        if tags:
            otel_ml.log_params(tags, prefix=f"{active.prefix}tags")
        return active
    return STATE.begin(run_id, run_name, tags or {}, description)


def end_run(status: str = "FINISHED") -> None:
    """End the innermost run; `FAILED` and `KILLED` are its status in every backend that knows one."""
    if not STATE.stack:
        return
    kind = _ENDINGS.get(str(status).upper())
    STATE.end(STATE.stack[-1], kind, kind(1) if kind is not None else None)


def active_run() -> ActiveRun | None:
    """Return the innermost run, or None."""
    return STATE.stack[-1] if STATE.stack else None


def last_active_run() -> ActiveRun | None:
    """Return the run begun last, also when it has ended."""
    return STATE.last


def set_experiment(experiment_name: str | None = None, experiment_id: str | None = None, **options: Any) -> Any:
    """Name the experiment of runs that begin from now on."""
    del options
    STATE.experiment = experiment_name or experiment_id
    return get_experiment_by_name(STATE.experiment or "")


def create_experiment(name: str, artifact_location: str | None = None, tags: Any = None) -> str:
    """Return the name as its id: an experiment begins with its first run."""
    del artifact_location, tags
    return name


def get_experiment_by_name(name: str) -> Any:
    """Return an experiment with `name` and `experiment_id`."""
    return SimpleNamespace(name=name, experiment_id=name, artifact_location="", lifecycle_stage="active", tags={})


def set_tracking_uri(uri: Any) -> None:
    """Say where the address of a server belongs."""
    STATE.uri = str(uri)
    if STATE.uri != STATE.where:
        not_kept(
            f"mlflow.set_tracking_uri({STATE.uri!r})",
            "set MLFLOW_TRACKING_URI where the job starts; the exporter 'mlflow' reads it.",
        )


def get_tracking_uri() -> str:
    """Return the address that was set, or that of the environment."""
    return STATE.uri or STATE.where or ""


def get_artifact_uri(artifact_path: str | None = None) -> str:
    """Return where the run's artifacts are, as far as this process knows."""
    uri = str(current().info.artifact_uri)
    return f"{uri}/{artifact_path}" if artifact_path else uri


def enable_system_metrics_logging() -> None:
    """Say where they come from."""
    not_kept("mlflow.enable_system_metrics_logging()", "use `otel_ml.diagnostics`.")


def disable_system_metrics_logging() -> None:
    """Do nothing: none are recorded by this module."""
