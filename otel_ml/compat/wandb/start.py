"""`wandb.init()` and the functions of the module, which act on the run of the process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.init_arguments import checked
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.own_backend import with_own_backend
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.definitions import Metric
from otel_ml.compat.wandb.disabled_run import DisabledRun
from otel_ml.compat.wandb.errors import UsageError
from otel_ml.compat.wandb.final_values import Summary
from otel_ml.compat.wandb.login import api
from otel_ml.compat.wandb.parameters import Config, as_mapping, of_sweep, with_files
from otel_ml.compat.wandb.recording_run import Run
from otel_ml.compat.wandb.run_facts import Asked, is_offline
from otel_ml.compat.wandb.util import generate_id
from otel_ml.wire.rendezvous import run_folder

__all__ = [
    "Settings",
    "alert",
    "define_metric",
    "ensure_configured",
    "finish",
    "init",
    "link_model",
    "log",
    "log_artifact",
    "log_code",
    "log_model",
    "mark_preempting",
    "restore",
    "save",
    "setup",
    "state",
    "teardown",
    "unwatch",
    "use_artifact",
    "use_model",
    "watch",
]

_WITHOUT_MEANING = frozenset({"allow_val_change", "anonymous", "force", "magic", "save_code", "settings"})
"""Arguments that ask for nothing a run of ours would not have, or that only W&B's own processes need."""

_TAIL_BYTES = 2**20


class Settings(SimpleNamespace):
    """Settings of W&B's own processes; those that name the run, and `mode`, are looked at."""


class State:
    """The run of this process, and the configuration that is filled before there is one."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self.config: Config = Config()
        self.environment: RunEnvironment = RunEnvironment()

    @property
    def summary(self) -> Summary:
        """That of the run; where there is none, what is set begins one, as the first `log()` does."""
        return Summary(_begin_with_summary) if self.run is None else self.run.summary

    @property
    def run(self) -> Run | None:
        """The active run; None also where the program has ended it through otel_ml itself."""
        if self._run is not None and not (self._run.disabled or self._run.is_active):
            self.ended(self._run)
        return self._run

    def began(self, run: Run) -> None:
        """Make it the run that the module's functions act on."""
        self._run = run

    def ended(self, run: Run) -> None:
        """Forget the run, if it is still the one."""
        if self._run is run:
            self._run = None
            self.config = Config()
            self.environment.undo()


state: State = State()


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 (W&B's names)
    id: str | None = None,  # noqa: A002
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    config: Any = None,
    config_exclude_keys: Iterable[str] | None = None,
    config_include_keys: Iterable[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: bool | str | None = None,
    resume: bool | str | None = None,
    **more: Any,
) -> Run:
    """Start a run, or return the one that is active; every rank may call it.

    `project` is the experiment, `config` the parameters, `group` and `job_type` are tags. What W&B takes from its
    environment variables (`WANDB_PROJECT`, `WANDB_NAME`, …) is taken from there too. Where the run is written is
    decided by `OTEL_ML_EXPORTERS` and `OTEL_ML_DIR`.

    Raises:
        ConfigError: an `OTEL_ML_*` variable or an argument is wrong.
        UsageError: `resume="must"` of a run that is not there, or `resume="never"` of one that is.
    """
    del allow_val_change, force  # the configuration may change, and nothing asks for a key
    of = _Given(more.get("settings"))
    run_id = of.chosen(id, "run_id", "WANDB_RUN_ID")
    shown = of.chosen(name, "run_name", "WANDB_NAME")
    beside = reinit == "create_new"
    if state.run is not None and not beside:
        if reinit not in {True, "finish_previous"} and not _is_other(state.run, project, id, name):
            state.run.config.update(config)
            return state.run
        state.run.finish()
    _say_unused(dir, more)
    chosen = _mode(of.chosen(mode, "mode", "WANDB_MODE"))
    asked = Asked(
        project=of.chosen(project, "project", "WANDB_PROJECT") or "",
        entity=of.chosen(entity, "entity", "WANDB_ENTITY") or "",
        group=of.chosen(group, "run_group", "WANDB_RUN_GROUP") or "",
        job_type=of.chosen(job_type, "run_job_type", "WANDB_JOB_TYPE") or "",
        tags=_tags(of.chosen(tags, "run_tags")),
        notes=of.chosen(notes, "run_notes", "WANDB_NOTES"),
        mode=chosen,
    )
    asked = replace(asked, resumed=chosen != "disabled" and _resumes(resume, _arguments(asked, run_id, shown)))
    given = with_files(_chosen_keys(as_mapping(config), config_include_keys, config_exclude_keys))
    if chosen != "disabled" and beside:
        return _beside(asked, run_id, shown, given)
    _fill(state.config, given)
    if chosen == "disabled":
        return _disabled(asked, run_id, shown)
    return _started(asked, run_id, shown)


def _is_other(run: Run, project: str | None, run_id: str | None, name: str | None) -> bool:
    """Whether an `init()` explicitly asks for another run than the one that is active, where that is W&B's to end."""
    if run.joins:
        return False
    asked = (project, run.project), (run_id, run.id), (name, run.name)
    return any(given is not None and given != known for given, known in asked)


def _arguments(asked: Asked, run_id: str | None, name: str | None) -> dict[str, Any]:
    return {
        "experiment": asked.project or None,
        "name": name,
        "id": run_id,
        "tags": [*asked.tags, *_labels(group=asked.group, job_type=asked.job_type)],
        "notes": asked.notes,
        "exporters": with_own_backend("wandb") if is_offline(asked.mode) or api.api_key else None,
    }


def _started(asked: Asked, run_id: str | None, name: str | None) -> Run:
    joins = RUNTIME.is_chosen  # begun by the program itself or by another of these interfaces
    if not joins:
        state.environment.set(_for_the_exporter(asked))
    begun = otel_ml.init() if joins else otel_ml.init(**_arguments(asked, run_id, name))
    run = _run_of(begun, state.config, replace(asked, joins=joins))
    state.began(run)
    return run


def _for_the_exporter(asked: Asked) -> Mapping[str, str]:
    """Return variables by which the exporter `wandb` gets what other backends have no place for."""
    wanted = {
        "WANDB_MODE": "offline" if is_offline(asked.mode) else "",
        "WANDB_PROJECT": asked.project if os.environ.get("WANDB_PROJECT") else "",  # which else is the experiment
        "WANDB_ENTITY": asked.entity,
        "WANDB_RUN_GROUP": asked.group,
        "WANDB_JOB_TYPE": asked.job_type,
    }
    return {name: value for name, value in wanted.items() if value}


def _beside(asked: Asked, run_id: str | None, name: str | None, given: Mapping[str, Any]) -> Run:
    """Begin a run beside those there are. The functions of the module go on with theirs, as W&B's do."""
    config = Config()
    _fill(config, given)
    return _run_of(RUNTIME.begin(_arguments(asked, run_id, name)), config, asked)


def _fill(config: Config, given: Mapping[str, Any]) -> None:
    config.update(given)
    config.update_locked(of_sweep())  # wins over what the program gives, now and later


def _run_of(begun: otel_ml.Run, config: Config, asked: Asked) -> Run:
    first = _next_step(begun.dir) if asked.resumed else 0
    run = Run(begun, config, asked, first, state.ended)
    config._connect(begun.log_params)  # noqa: SLF001 (one package)
    return run


def _disabled(asked: Asked, run_id: str | None, name: str | None) -> Run:
    stand_in: Any = SimpleNamespace(
        id=run_id or generate_id(), name=name or "dummy", experiment=asked.project, dir=None, rank=0, urls={}
    )
    run = DisabledRun(stand_in, state.config, asked, 0, state.ended)
    state.began(run)
    return run


def _labels(**labels: str) -> list[str]:
    return [f"{key}:{value}" for key, value in labels.items() if value]


def _tags(tags: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(tags, str):
        return (tags,)
    given = tags if tags is not None else os.environ.get("WANDB_TAGS", "").split(",")
    return tuple(str(tag).strip() for tag in given if str(tag).strip())


class _Given:
    """What is asked for: by an argument of `init()`, else by its `settings`, else by a variable."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings if isinstance(settings, Mapping) else vars(settings or SimpleNamespace())

    def chosen(self, argument: Any, setting: str, variable: str = "") -> Any:
        """Return the first of them that says something, or None."""
        said = argument if argument is not None else self._settings.get(setting)
        return said if said is not None else os.environ.get(variable) or None


def _mode(asked: str | None) -> str:
    if os.environ.get("WANDB_DISABLED", "").lower() in {"1", "true", "yes"}:
        return "disabled"
    return str(asked or "online")


def _chosen_keys(
    given: Mapping[str, Any], included: Iterable[str] | None, excluded: Iterable[str] | None
) -> dict[str, Any]:
    wanted = frozenset(included or given)
    return {key: value for key, value in given.items() if key in wanted and key not in frozenset(excluded or ())}


def _resumes(resume: bool | str | None, arguments: Mapping[str, Any]) -> bool:
    """Return whether the run goes on that is there; where a service elsewhere has it, whether it was asked for."""
    asked = resume if resume is not None else os.environ.get("WANDB_RESUME", "")
    run_id = arguments["id"]
    if asked in {True, "auto"} and run_id is None:
        not_kept(f"wandb.init(resume={asked!r})", "a new run begins. Pass the id= of the run that goes on.")
    if not asked or run_id is None:
        return False
    config = checked(arguments, os.environ)
    is_there = (run_folder(config.dir, config.experiment, run_id) / "metrics.jsonl").is_file()
    if config.is_remote or RUNTIME.is_chosen or os.environ.get("RANK", "0") != "0":
        return asked != "never" and (is_there or config.is_remote)
    if asked == "must" and not is_there:
        raise UsageError(f"resume='must': there is no run {run_id!r} of {config.experiment!r} in {config.dir}.")
    if asked == "never" and is_there:
        raise UsageError(f"resume='never': there is a run {run_id!r} of {config.experiment!r} in {config.dir}.")
    return is_there


def _say_unused(folder: Any, more: Mapping[str, Any]) -> None:
    if folder is not None:
        not_kept(f"wandb.init(dir={str(folder)!r})", "runs are in the folder that OTEL_ML_DIR names.")
    for key, value in more.items():
        if value and key not in _WITHOUT_MEANING:
            not_kept(f"wandb.init({key}=…)", "it means nothing to otel_ml; the run goes on without it.")


def _next_step(folder: Path | None) -> int:
    """Return the step after the last one that the run's own rows have: where W&B goes on after a resume."""
    path = None if folder is None else folder / "metrics.jsonl"
    if path is None or not path.is_file():
        return 0
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().splitlines()
    return max((_step_in(line) + 1 for line in lines), default=0)


def _step_in(line: bytes) -> int:
    try:
        row = json.loads(line)
        return int(row["step"]) if row.get("axis", "step") == "step" else -1
    except (ValueError, KeyError, TypeError, AttributeError):
        return -1  # the first line of the tail may be the end of one, the last is maybe being written


def _run() -> Run:
    """Return the active run; W&B demands `init()` first, here the first call begins one, and says so."""
    if state.run is None and not RUNTIME.is_active:
        not_kept("A call of wandb", "Error: You must call wandb.init() first. A run begins, and takes what follows.")
    return state.run if state.run is not None else init()


def _begin_with_summary(values: Mapping[str, Any]) -> None:
    _run().summary.update(values)


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None) -> None:
    """Record a row, see `Run.log()`."""
    (state.run or _run()).log(data, step, commit, sync)


def define_metric(
    name: str,
    step_metric: Any = None,
    step_sync: bool | None = None,
    hidden: bool | None = None,
    summary: str | None = None,
    overwrite: bool | None = None,
    goal: str | None = None,
) -> Metric:
    """Say how a metric is drawn and summed up, see `Run.define_metric()`."""
    return _run().define_metric(name, step_metric, step_sync, hidden, summary, overwrite, goal)


def log_artifact(
    artifact_or_path: Any,
    name: str | None = None,
    type: str | None = None,  # noqa: A002 (W&B's name)
    aliases: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
) -> Artifact:
    """Record an artifact, a file or a folder."""
    return _run().log_artifact(artifact_or_path, name, type, aliases, tags)


def log_model(path: Any, name: str | None = None, aliases: Iterable[str] | None = None) -> Artifact:
    """Record a model's files."""
    return _run().log_model(path, name, aliases)


def save(glob_str: Any = None, base_path: Any = None, policy: str = "live", glob: bool = True) -> list[str]:
    """Record the files that match now; with `glob=False` the one file of that name."""
    return _run().save(glob_str, base_path, policy, glob)


def use_artifact(
    artifact_or_name: Any,
    type: str | None = None,  # noqa: A002 (W&B's name)
    aliases: Iterable[str] | None = None,
    use_as: str | None = None,
) -> Any:
    """Return an artifact, see `Run.use_artifact()`."""
    return _run().use_artifact(artifact_or_name, type, aliases, use_as)


def use_model(name: str) -> str:
    """Return the path of a model, see `Run.use_model()`."""
    return _run().use_model(name)


def link_model(
    path: Any, registered_model_name: str, name: str | None = None, aliases: Iterable[str] | None = None
) -> Artifact:
    """Record a model, see `Run.link_model()`."""
    return _run().link_model(path, registered_model_name, name, aliases)


def restore(name: str, run_path: str | None = None, replace: bool = False, root: str | None = None) -> None:
    """Return None, see `Run.restore()`."""
    _run().restore(name, run_path, replace, root)


def log_code(root: Any = ".", **options: Any) -> None:
    """Do nothing: the commit and what differs from it are in every run."""
    del root, options


def alert(title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
    """Record an event `alert`."""
    _run().alert(title, text, level, wait_duration)


def watch(models: Any, *more: Any, **options: Any) -> None:
    """Say that gradients are not watched."""
    _run().watch(models, *more, **options)


def unwatch(models: Any = None) -> None:
    """Do nothing."""
    del models


def mark_preempting() -> None:
    """Record an event `preempting`."""
    _run().mark_preempting()


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run, if there is one."""
    if state.run is not None:
        state.run.finish(exit_code, quiet)


def setup(*arguments: Any, **options: Any) -> None:
    """Do nothing: the service starts with the run."""
    del arguments, options


def ensure_configured() -> None:
    """Do nothing."""


def teardown(exit_code: int | None = None) -> None:
    """End the run, if there is one."""
    finish(exit_code)
