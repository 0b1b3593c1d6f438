"""`wandb.init()`, and the run of the process that it begins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import otel_ml
from otel_ml import env
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import fall_silent, is_given, not_kept, options_not_kept, speak_again
from otel_ml.compat.tracking.own_backend import with_own_backend
from otel_ml.compat.wandb.code_files import main_script
from otel_ml.compat.wandb.disabled_run import DisabledRun
from otel_ml.compat.wandb.final_values import Summary
from otel_ml.compat.wandb.login import api
from otel_ml.compat.wandb.parameters import Config, as_mapping, of_sweep, with_files
from otel_ml.compat.wandb.rank_by_id import leave, rank_by_id, say_rank
from otel_ml.compat.wandb.recording_run import Run
from otel_ml.compat.wandb.resuming import goes_on, name_before, next_step
from otel_ml.compat.wandb.run_facts import InitArguments
from otel_ml.compat.wandb.settings import Settings, is_offline
from otel_ml.compat.wandb.util import generate_id

__all__ = ["Settings", "attach", "init", "run_or_begin", "state"]

_WITHOUT_MEANING = frozenset({"allow_val_change", "anonymous", "force", "magic", "save_code", "settings"})
"""Arguments that ask for nothing a run of ours would not have, or that only W&B's own processes need."""

_LOOKED_AT = frozenset(
    {"code_dir", "entity", "mode", "project", "run_group", "run_id", "run_job_type", "run_name", "run_notes",
     "run_tags", "save_code"}
)  # fmt: skip
"""Settings that `init()` takes."""

_OF_A_SHARED_RUN = frozenset({"x_label", "x_primary", "x_update_finish_state"})
"""Settings that it takes with `mode="shared"`. A run ends with the last of its processes anyway."""

_SO_ANYWAY = frozenset(
    {"_disable_stats", "allow_val_change", "anonymous", "init_timeout", "login_timeout", "quiet", "silent",
     "start_method", "symlink", "x_disable_stats"}
)  # fmt: skip
"""Settings of what otel_ml does not do: it waits for no server, prints little and links no files."""

_WITHOUT_SETTINGS = "otel_ml has no such settings; one that W&B does not have either is a ValidationError there."

_NOT_IN_AN_ID = frozenset(":;,#?/'")


class State:
    """The run of this process, and the configuration that is filled before there is one."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self.config: Config = Config()
        self.environment: RunEnvironment = RunEnvironment()
        # The run that ended last, and the step behind its rows.
        self._left: tuple[str, int] = ("", 0)
        # Weakly: a sweep of many runs in one process keeps none of them alive.
        self._known: WeakValueDictionary[str, Run] = WeakValueDictionary()

    def __reduce__(self) -> str:
        """Be the one of the other process in the pickle of a disabled run, which tells it of its end."""
        return "state"

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
        self.know(run)

    def know(self, run: Run) -> None:
        """Find it again by its id, also once it has ended."""
        self._known[run.id] = run

    def run_with(self, run_id: str) -> Run | None:
        """Return the run of this process with that id, as long as somebody holds it."""
        return self._known.get(run_id)

    def ended(self, run: Run) -> None:
        """Forget the run, if it is still the one."""
        # Where the program's own run goes on, the next init() joins it, and its rows follow these.
        self._left = (run.id, run.next_step)
        leave(run.id)
        speak_again(run)
        if self._run is run:
            self._run = None
            self.config = Config()
            self.environment.undo()

    def first_step_in(self, run_id: str) -> int:
        """Return the step after the rows of the `init()` before, where that has joined the same run of the program."""
        left, step = self._left
        return step if left == run_id else 0


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
    _say_unused(dir, more)
    is_shared = of.chosen(mode, "mode", "WANDB_MODE") == "shared"
    options_not_kept("wandb.Settings", _WITHOUT_SETTINGS, **of.unused(_OF_A_SHARED_RUN if is_shared else frozenset()))
    run_id = of.chosen(id, "run_id", "WANDB_RUN_ID")
    if not _NOT_IN_AN_ID.isdisjoint(str(run_id or "")):
        wrong = "UsageError: Run ID cannot contain the characters: :;,#?/'"
        not_kept(f"wandb.init(id={run_id!r:.60})", f"{wrong}. W&B's own page has the run under another one.")
    shown = of.chosen(name, "run_name", "WANDB_NAME")
    beside = reinit == "create_new"
    if state.run is not None and not beside:
        if reinit not in {True, "finish_previous"} and not _is_other(state.run, project, id, name):
            _say_other(state.run.config, as_mapping(config))
            return state.run
        state.run.finish()
    chosen = _mode(of.chosen(mode, "mode", "WANDB_MODE"))
    asked = InitArguments(
        project=of.chosen(project, "project", "WANDB_PROJECT") or "",
        entity=of.chosen(entity, "entity", "WANDB_ENTITY") or "",
        group=of.chosen(group, "run_group", "WANDB_RUN_GROUP") or "",
        job_type=of.chosen(job_type, "run_job_type", "WANDB_JOB_TYPE") or "",
        tags=_tags(of.chosen(tags, "run_tags")),
        notes=of.chosen(notes, "run_notes", "WANDB_NOTES"),
        mode=chosen,
        role=_role(of) if chosen == "shared" else "",
    )
    # Before the run begins: it makes the folder whose being there decides.
    asked = replace(asked, resumed=chosen != "disabled" and goes_on(resume, _arguments(asked, run_id, shown)))
    if asked.resumed and shown is None:
        shown = name_before(_arguments(asked, run_id, None))
    given = with_files(_chosen_keys(as_mapping(config), config_include_keys, config_exclude_keys))
    if chosen != "disabled" and beside:
        return _beside(asked, run_id, shown, given)
    _fill(state.config, given)
    if chosen == "disabled":
        return _disabled(asked, run_id, shown)
    run = _started(asked, run_id, shown)
    _keep_code(run, of, more.get("save_code"))
    return run


def _keep_code(run: Run, of: _Given, is_asked_for: bool | None) -> None:
    """Record the main script, or the folder of code that is named, where code is to be saved."""
    if str(of.chosen(is_asked_for, "save_code", "WANDB_SAVE_CODE")).lower() not in {"1", "true", "yes"}:
        return
    folder = of.chosen(None, "code_dir", "WANDB_CODE_DIR")
    if folder is not None:
        run.log_code(folder)
    elif (script := main_script()) is not None:
        run.log_artifact(script)


def _is_other(run: Run, project: str | None, run_id: str | None, name: str | None) -> bool:
    """Whether an `init()` explicitly asks for another run than the one that is active, where that is W&B's to end."""
    if run.joins:
        return False
    # Of the call's own arguments: variables such as WANDB_NAME name every run of the process.
    asked = (project, run.project), (run_id, run.id), (name, run.name)
    return any(given is not None and given != known for given, known in asked)


def _say_other(config: Config, given: Mapping[str, Any]) -> None:
    """Say what an `init()` during a run asks for that the run's configuration, which stays, does not have."""
    changed = [key for key, value in Config.of(given).items() if key not in config or config[key] != value]
    if changed:
        names = ", ".join(map(repr, changed[:3]))
        not_kept("wandb.init(config=…)", f"the run that is active keeps its own {names}. Call run.config.update().")


def _arguments(asked: InitArguments, run_id: str | None, name: str | None) -> dict[str, Any]:
    return {
        "experiment": asked.project or None,
        "name": name,
        "id": run_id,
        "tags": [*asked.tags, *_labels(group=asked.group, job_type=asked.job_type)],
        "notes": asked.notes,
        "role": asked.role or None,
        "prefix": "" if asked.mode == "shared" else None,
        # Without a key W&B takes nothing but an offline run.
        "exporters": with_own_backend("wandb") if is_offline(asked.mode) or api.api_key else None,
    }


def _started(asked: InitArguments, run_id: str | None, name: str | None) -> Run:
    joins = RUNTIME.is_chosen  # begun by the program itself or by another of these interfaces
    if not joins:
        # Before init(), which starts the service with these variables; `ended()` puts them back.
        state.environment.set(_for_the_exporter(asked))
    arguments = {} if joins else _arguments(asked, run_id, name)
    rank = None if joins else rank_by_id(arguments)
    begun = otel_ml.init(**arguments, rank=rank)
    if rank is not None:
        say_rank(begun.id)
    run = _run_of(begun, state.config, replace(asked, joins=joins))
    state.began(run)
    return run


def attach(run_id: str, asked: InitArguments, config: Mapping[str, Any], next_step: int) -> Run:
    """Return the job's run of that id, in another process than the one that began it.

    Args:
        run_id: of the run.
        asked: what it was begun with.
        config: its parameters, which are recorded already.
        next_step: at which the rows of this process begin.
    """
    begun = otel_ml.init(id=run_id, experiment=asked.project or None, role=asked.role or None)
    state.config = Config.of(config)
    # The values that came along are recorded already, by the process that began the run.
    state.config._record_with(begun.log_params)  # noqa: SLF001 (one package)
    run = Run(begun, state.config, replace(asked, joins=False), next_step, state.ended)
    state.began(run)
    return run


def _for_the_exporter(asked: InitArguments) -> Mapping[str, str]:
    """Return variables by which the exporter `wandb` gets what no tag of the run tells it."""
    wanted = {
        "WANDB_MODE": "offline" if is_offline(asked.mode) else "",
        "WANDB_PROJECT": asked.project if os.environ.get("WANDB_PROJECT") else "",  # which else is the experiment
        "WANDB_ENTITY": asked.entity,
    }
    return {name: value for name, value in wanted.items() if value}


def _beside(asked: InitArguments, run_id: str | None, name: str | None, given: Mapping[str, Any]) -> Run:
    """Begin a run beside those there are. The functions of the module go on with theirs, as W&B's do."""
    if asked.entity != os.environ.get("WANDB_ENTITY", ""):
        not_kept(f"wandb.init(entity={asked.entity!r})", "the run is in W&B where the one beside it is.")
    config = Config()
    _fill(config, given)
    return _run_of(RUNTIME.begin(_arguments(asked, run_id, name)), config, asked)


def _fill(config: Config, given: Mapping[str, Any]) -> None:
    config.update(given)
    config.update_locked(of_sweep())  # wins over what the program gives, now and later


def _run_of(begun: otel_ml.Run, config: Config, asked: InitArguments) -> Run:
    first = next_step(begun.dir) if asked.resumed else state.first_step_in(begun.id)
    run = Run(begun, config, asked, first, state.ended)
    state.know(run)
    config._connect(begun.log_params)  # noqa: SLF001 (one package)
    return run


def _disabled(asked: InitArguments, run_id: str | None, name: str | None) -> Run:
    run_id = run_id or generate_id()
    # What `RunFacts` asks of a run of otel_ml.
    stand_in: Any = SimpleNamespace(
        id=run_id, name=name or f"dummy-{run_id}", experiment=asked.project, dir=None, rank=0, urls={}
    )
    run = DisabledRun(stand_in, state.config, asked, 0, state.ended)
    fall_silent(run)
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
        # The variables as whoever started the process has set them, without those that a run before has set for its
        # exporter.
        return said if said is not None else state.environment.before().get(variable) or None

    def unused(self, used: Set[str]) -> dict[str, Any]:
        """Return the settings that are not looked at, and ask for something else than what is so here anyway."""
        known = _LOOKED_AT | _SO_ANYWAY | used
        asked = {text_of(name): value for name, value in self._settings.items() if name not in known}
        # What `console="off"` asks for is so here anyway; any other `console` is reported.
        return {name: value for name, value in asked.items() if (name, value) != ("console", "off")}


def _role(of: _Given) -> str:
    """Return the role of a process that shares its run; empty for the role that the environment gives it.

    Several processes that begin a run by its id would be restarts of one rank. So the label of a process is its role,
    and one that is not the primary and has no label has a role of its own.
    """
    label = of.chosen(None, "x_label", "WANDB_X_LABEL")
    if label is not None or env.SERVICE_NAME.name in os.environ:
        return text_of(label or "")
    return f"writer-{generate_id()}" if of.chosen(None, "x_primary") is False else ""


def _mode(asked: str | None) -> str:
    if os.environ.get("WANDB_DISABLED", "").lower() in {"1", "true", "yes"}:
        return "disabled"
    if asked and asked not in _MODES:
        wrong = f"ValidationError: a mode is one of {', '.join(_MODES)}"
        not_kept(
            f"wandb.init(mode={asked!r})",
            f"{wrong}. A run that this call begins is offline in W&B: `wandb sync` sends it.",
        )
        return "offline"
    return str(asked or "online")


_MODES = ("online", "offline", "shared", "disabled", "dryrun", "run")


def _chosen_keys(
    given: Mapping[str, Any], included: Iterable[str] | None, excluded: Iterable[str] | None
) -> dict[str, Any]:
    wanted = frozenset(included or given)
    return {key: value for key, value in given.items() if key in wanted and key not in frozenset(excluded or ())}


def _say_unused(folder: Any, more: Mapping[str, Any]) -> None:
    if folder is not None:
        not_kept(f"wandb.init(dir={str(folder)!r})", "runs are in the folder that OTEL_ML_DIR names.")
    for key, value in more.items():
        if is_given(value) and key not in _WITHOUT_MEANING:
            not_kept(f"wandb.init({key}=…)", "it means nothing to otel_ml; the run goes on without it.")


def run_or_begin() -> Run:
    """Return the active run; W&B demands `init()` first, here the first call begins one, and says so."""
    if state.run is None and not RUNTIME.is_active:
        not_kept("A call of wandb", "Error: You must call wandb.init() first. A run begins, and takes what follows.")
    return state.run if state.run is not None else init()


def _begin_with_summary(values: Mapping[str, Any]) -> None:
    run_or_begin().summary.update(values)
