"""The runs of this process that are open: the stack of each thread.

There is one run for the whole job, and one of each thread that begins one. A nested run is a part of it: its names
begin with its own name.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.read_run import name_of
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.mlflow.active_run import NOTE, PARENT, RUN_NAME, ActiveRun, now
from otel_ml.compat.mlflow.default_store import default_store
from otel_ml.compat.mlflow.experiment_ids import experiment_of_environment, experiment_of_id
from otel_ml.compat.mlflow.joined_runs import JoinedRuns
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.own_backend import with_own_backend
from otel_ml.compat.tracking.step_axes import StepCounts
from otel_ml.config import Config
from otel_ml.exceptions import ConfigError

__all__ = ["STATE", "TRACKING_URI", "OpenRuns", "current", "run_of"]

TRACKING_URI = "MLFLOW_TRACKING_URI"
_RUN_ID = "MLFLOW_RUN_ID"


class _OfThread(threading.local):
    """The runs of one thread, as MLflow has them."""

    def __init__(self) -> None:
        self.stack: list[ActiveRun] = []
        self.last: ActiveRun | None = None
        self.counts = StepCounts()
        self.run_id: str | None = None


class OpenRuns:
    """What the module's functions act on."""

    def __init__(self) -> None:
        self._here = _OfThread()
        self._lock = threading.Lock()  # of two threads that begin at once the later one has to know of the other's run
        self._begun: list[otel_ml.Run] = []
        self._known: dict[str, ActiveRun] = {}
        self.joined: JoinedRuns = JoinedRuns(self._lock)
        self.experiment: str | None = None
        self.uri = ""
        self._exporters: tuple[str, ...] | None = None
        self._variables: Mapping[str, str] = {}
        self._set = RunEnvironment()

    @property
    def stack(self) -> list[ActiveRun]:
        """The runs of this thread that are open, the innermost last; of one that has ended otherwise none is."""
        stack = self._here.stack
        # One run for the whole stack: nested runs are parts of it.
        if stack and not stack[0].run.is_active:
            self._here.last = stack[0]
            stack.clear()
        return stack

    @property
    def last(self) -> ActiveRun | None:
        """The innermost run of this thread; where none is open, the one that has ended last."""
        return self.stack[-1] if self.stack else self._here.last

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
            self.joined.keep(run)
        return self.join(run, "", is_owner=is_owner, tags=tags)

    def _run_for(
        self,
        run_id: str | None,
        name: str | None,
        tags: Mapping[str, Any],
        notes: str | None,
        experiment_id: str | None = None,
    ) -> tuple[otel_ml.Run, bool]:
        """Return the run, and whether it is begun here."""
        self._begun = [run for run in self._begun if run.is_active]
        session = RUNTIME.current
        # No run, one that only the environment has begun, or one of these: then the run is ours to begin or to find.
        # The program's own run, by `otel_ml.init()`, has everything.
        if not RUNTIME.is_chosen or (session is not None and session.run in self._begun):
            # Taken out, as MLflow does: the run after this one is another.
            chosen = run_id or os.environ.pop(_RUN_ID, None) or None
            # Another thread may have begun it, as a trial of a pool that names its run.
            joined = next((run for run in self._begun if run.id == chosen), None)
            if joined is not None:
                RUNTIME.make_current(joined)
                return joined, True
            named = experiment_of_id(experiment_id, f"mlflow.start_run(experiment_id={experiment_id!r})")
            experiment = self._experiment_of_run(chosen) or named or self._named_experiment()
            # These two are the run's name and its notes, not tags of it.
            labels = [f"{key}:{value}" for key, value in tags.items() if key not in {NOTE, RUN_NAME}]
            # A run that goes on keeps its name unless it is given another; otel_ml would make a new one.
            name = self._name_before(chosen, experiment) if name is None and chosen is not None else name
            return self._another({"experiment": experiment, "name": name, "id": chosen, "tags": labels, "notes": notes})
        return otel_ml.init(), False

    def _another(self, arguments: Mapping[str, Any]) -> tuple[otel_ml.Run, bool]:
        """Begin a run beside those that were begun here."""
        exporters, variables = self._destination()
        self._set.set(variables)
        # `init()` ends a run that a record has begun by itself (ADR 0023). Once there is one of ours it would return
        # that one, so a further thread's run is begun beside it.
        begin = RUNTIME.begin if self._begun else RUNTIME.init
        run = begin({**arguments, "exporters": exporters})
        self._begun.append(run)
        return run, True

    def attach(self, run_id: str) -> ActiveRun | None:
        """Join a run of another process, or a part of it, for what names it; the active run stays the active one.

        Returns:
            None where the program has begun a run itself, which has everything, and where no run can have that id.
        """
        whole, _, part = run_id.partition("/")
        named = self.known(whole)
        run = self._of_another_process(whole) if named is None else named.run
        if run is None:
            return None
        prefix = f"{part}/" if part else ""
        return ActiveRun(run, run_id, part or run.name, prefix, is_owner=False, tags={}, end=self.end)

    def _of_another_process(self, run_id: str) -> otel_ml.Run | None:
        before = RUNTIME.current
        try:
            with self._lock:
                others = {run.id for run in self._begun if run.is_active}
                run, is_ours = self._run_for(run_id, None, {}, None) if run_id else (None, False)
                if run is not None and is_ours and run.id not in others:
                    self.joined.add(run)
                elif run is not None:
                    self.joined.use(run)
        except ConfigError:
            return None
        # Beginning a run makes it the current one; here it is only written to.
        if before is not None:
            RUNTIME.make_current(before.run)
        # The program's own run is returned whatever id is asked for.
        return run if run is not None and run.id == run_id else None

    def _experiment_of_run(self, run_id: str | None) -> str | None:
        """Return the experiment that has a run in `OTEL_ML_DIR`: where the id is, not what `set_experiment()` says."""
        found = None if run_id is None else experiment_with_run(run_id)
        if found is not None and self.experiment not in {None, found}:
            wrong = "MlflowException: active run ID does not match environment run ID"
            goes_on = f"the run goes on in {found!r}, where it is, not in {self.experiment!r}"
            not_kept(f"mlflow.start_run(run_id={run_id!r})", f"{wrong}: {goes_on}.")
        return found

    def _name_before(self, run_id: str, experiment: str | None) -> str | None:
        """Return what a run that goes on was called; None where neither this process nor `OTEL_ML_DIR` has it."""
        known = self.known(run_id)
        if known is not None:
            return str(known.info.run_name)
        folder = Config.from_env(os.environ).dir / (experiment or "") / run_id
        return name_of(folder) if folder.is_dir() else None

    def _named_experiment(self) -> str | None:
        return self.experiment or experiment_of_environment()

    def _destination(self) -> tuple[tuple[str, ...] | None, Mapping[str, str]]:
        """Return who writes the next run, and the variables that say where; MLflow's own store if nobody says."""
        if self._exporters is not None:
            return self._exporters, self._variables
        exporters = with_own_backend("mlflow")
        if exporters is None or self.where is not None:
            return exporters, self._variables
        store = default_store()
        return (None, self._variables) if store is None else (exporters, {TRACKING_URI: store})

    def join(
        self, run: otel_ml.Run, prefix: str, *, is_owner: bool = False, tags: Mapping[str, Any] | None = None
    ) -> ActiveRun:
        """Let the module's functions record into a run that is active, under names that begin with `prefix`."""
        # The same run again, as by `start_run(run_id=…)` after end_run(), counts its steps on from where it was.
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
        # As MLflow's end_run() does, also where an argument has named the run that ends.
        os.environ.pop(_RUN_ID, None)
        # Who ends a run ends the nested ones in it, too.
        while active in self.stack:
            ended = self._here.last = self.stack.pop()
            ended.info.status = status or ("FINISHED" if kind is None else "FAILED")
            ended.info.end_time = now()
        if active.is_owner:
            active.run.__exit__(kind, error, None)
            # The variables tell the exporters of all runs of this process where to write.
            if not any(run.is_active for run in self._begun):
                self._set.undo()

    def write_to(self, exporters: tuple[str, ...] | None, variables: Mapping[str, str]) -> None:
        """Have runs that begin from now on written by `exporters`, which are told where by `variables`."""
        self._exporters, self._variables = exporters, variables

    @property
    def where(self) -> str | None:
        """Address of the server or store that the exporter `mlflow` is told."""
        return self._variables.get(TRACKING_URI) or os.environ.get(TRACKING_URI)

    @property
    def is_told_where(self) -> bool:
        """Whether the script or the job says which server or store."""
        return TRACKING_URI in self._variables or bool(self._set.before().get(TRACKING_URI))

    def _push(self, active: ActiveRun) -> ActiveRun:
        self.stack.append(active)
        before = self._known.get(active.info.run_id)
        if before is not None and not active.prefix:
            active.goes_on_from(before)
        self._known[active.info.run_id] = active
        return active


STATE = OpenRuns()


def current() -> ActiveRun:
    """Return the active run; begins one where there is none, as MLflow does."""
    if STATE.stack:
        return STATE.stack[-1]
    return STATE.begin(None, None, {}, None)


def run_of(call: str, run_id: str | None) -> AbstractContextManager[ActiveRun]:
    """Return a block that records into the run that is named, also another thread's or process's.

    In one that has ended nothing is recorded: what it had measured would be in another run.
    """
    named = None if run_id is None else STATE.known(run_id) or STATE.attach(text_of(run_id))
    if named is not None:
        if not named.run.is_active:
            goes_on = f"start_run(run_id={run_id!r}) goes on with it"
            not_kept(f"mlflow.{call}(run_id={run_id!r})", f"it has ended: it is in no run; {goes_on}.")
        return _inside(named)
    if run_id is not None:
        not_kept(f"mlflow.{call}(run_id={run_id!r})", "it is recorded in the active run.")
    return nullcontext(current())


@contextmanager
def _inside(active: ActiveRun) -> Iterator[ActiveRun]:
    with STATE.joined.using(active.run), active.run.use():
        yield active


def experiment_with_run(run_id: str) -> str | None:
    """Return the experiment below `OTEL_ML_DIR` in which the run is; None where there is none."""
    folder = Config.from_env(os.environ).dir
    # The id of a nested run is that of its parent, a slash, and its name: it has no folder of its own.
    if "/" in run_id or not folder.is_dir():
        return None
    return next((one.name for one in folder.iterdir() if (one / run_id).is_dir()), None)
