"""NeMo RL's `LoggerConfig`, checked at once, and what it means for `otel_ml.init()` and the backends."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_ml.compat.nemo_rl.config_types import WandbConfig
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import say

__all__ = ["Settings", "settings_from", "should_log_nemo_gym_full_result_tables"]

_BACKENDS = ("wandb", "swanlab", "tensorboard", "mlflow")

_SWITCHES = (*(f"{name}_enabled" for name in _BACKENDS), "monitor_gpus")

_KEYS = ("log_dir", *_SWITCHES, *_BACKENDS, "gpu_monitoring", "num_val_samples_to_print")

_USED: Mapping[str, frozenset[str]] = {
    "wandb": frozenset(
        {"project", "name", "entity", "group", "job_type", "id", "tags", "notes", "mode", "resume", "dir"}
    )
    | {"log_nemo_gym_full_result_tables"},
    "swanlab": frozenset({"project", "name", "tags", "description"}),
    "tensorboard": frozenset({"log_dir"}),
    "mlflow": frozenset({"experiment_name", "run_id", "run_name", "tracking_uri"}),
}
"""What means something here; other keys are reported. `resume` and the folders are what otel_ml does anyway."""

_LISTS = frozenset({"tags"})

_ANY = frozenset({"resume", "log_nemo_gym_full_result_tables"})

_EXPERIMENTS = (("mlflow", "experiment_name"), ("wandb", "project"), ("swanlab", "project"))

_NAMES = (("wandb", "name"), ("swanlab", "name"), ("mlflow", "run_name"))

_MLFLOW_VARIABLES = {
    "tracking_uri": "MLFLOW_TRACKING_URI",
    "run_id": "MLFLOW_RUN_ID",
    "experiment_name": "MLFLOW_EXPERIMENT_NAME",
    "run_name": "MLFLOW_RUN_NAME",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a `LoggerConfig` asks for.

    Attributes:
        log_dir: absolute; runs and dumps lie below it.
        exporters: `jsonl` and the backends that are enabled.
        experiment: MLflow experiment, else W&B or SwanLab project.
        name: display name of the run.
        id: of the run to continue.
        environment: variables by which the backends get what `otel_ml.init()` has no argument for.
        num_val_samples_to_print: validation samples on the console.
    """

    log_dir: Path
    exporters: tuple[str, ...]
    experiment: str | None = None
    name: str | None = None
    id: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    num_val_samples_to_print: int = 0


def settings_from(cfg: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Settings:
    """Return what `cfg` asks for, with MLflow's variables where its section says nothing.

    Raises:
        ConfigError: all that is wrong with `cfg`, in one message.
    """
    environ = os.environ if environ is None else environ
    if not isinstance(cfg, Mapping):
        raise ConfigError(f"Logger(cfg): expected a mapping such as {{'log_dir': 'logs'}}, got {cfg!r:.80}.")
    wrong = _problems(cfg)
    if wrong:
        raise ConfigError(*wrong)
    enabled = [name for name in _BACKENDS if cfg.get(f"{name}_enabled")]
    sections = {name: dict(cfg.get(name) or {}) for name in enabled}
    if "mlflow" in sections:
        sections["mlflow"] = _with_variables(sections["mlflow"], environ)
    _say_unused(sections)
    wandb, swanlab, mlflow = (sections.get(name, {}) for name in ("wandb", "swanlab", "mlflow"))
    others = {name: cfg.get(name) or {} for name in _BACKENDS}
    log_dir = Path(os.fspath(cfg["log_dir"])).expanduser().absolute()
    return Settings(
        log_dir=log_dir,
        exporters=("jsonl", *enabled),
        # A backend that is off has no say, but its names are better than none for the run's folder.
        experiment=_first(sections, _EXPERIMENTS) or _first(others, _EXPERIMENTS),
        name=_name(sections) or _first(others, _NAMES),
        id=mlflow.get("run_id") or wandb.get("id"),
        tags=tuple(dict.fromkeys((*(wandb.get("tags") or ()), *(swanlab.get("tags") or ())))),
        notes=wandb.get("notes") or swanlab.get("description"),
        environment=_environment(wandb, mlflow, log_dir, environ),
        num_val_samples_to_print=int(cfg.get("num_val_samples_to_print") or 0),
    )


def _problems(cfg: Mapping[str, Any]) -> list[str]:
    wrong: list[str] = []
    if not isinstance(cfg.get("log_dir"), (str, os.PathLike)) or not os.fspath(cfg["log_dir"]):
        wrong.append(f"log_dir: expected a folder, got {cfg.get('log_dir')!r:.80}.")
    wrong += [
        f"{key}: expected true or false, got {cfg[key]!r:.80}."
        for key in _SWITCHES
        if key in cfg and not isinstance(cfg[key], bool)
    ]
    for key in cfg:
        # NeMo RL's configuration grows, and a key that is new to us is let pass. One that is nearly one of ours is a
        # typing error.
        near = difflib.get_close_matches(str(key), _KEYS, n=1, cutoff=0.8)
        if key not in _KEYS and near:
            wrong.append(f"{key}: is not a key of the Logger's configuration. Did you mean {near[0]!r}?")
    for name in _BACKENDS:
        wrong += _section_problems(name, cfg.get(name))
    return wrong + _gpu_problems(cfg) + _count_problems(cfg)


def _section_problems(name: str, section: Any) -> list[str]:
    if section is None:
        return []
    if not isinstance(section, Mapping):
        return [f"{name}: expected a mapping, got {section!r:.80}."]
    # Paths count as texts: they become variables and names.
    texts = {key: section.get(key) for key in _USED[name] - _LISTS - _ANY}
    wrong = [
        f"{name}.{key}: expected text, got {value!r:.80}."
        for key, value in sorted(texts.items())
        if value is not None and not isinstance(value, (str, os.PathLike))
    ]
    tags = section.get("tags") if "tags" in _USED[name] else None
    if tags is not None and not _are_texts(tags):
        wrong.append(f"{name}.tags: expected a list of texts, got {tags!r:.80}.")
    return wrong


def _are_texts(tags: Any) -> bool:
    return isinstance(tags, Sequence) and not isinstance(tags, str) and all(isinstance(tag, str) for tag in tags)


def _gpu_problems(cfg: Mapping[str, Any]) -> list[str]:
    section = cfg.get("gpu_monitoring")
    if section is None:
        return []
    if not isinstance(section, Mapping):
        return [f"gpu_monitoring: expected a mapping, got {section!r:.80}."]
    return [
        f"gpu_monitoring.{key}: expected seconds above 0, got {section[key]!r:.80}."
        for key in ("collection_interval", "flush_interval")
        if key in section and not _is_positive(section[key])
    ]


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _count_problems(cfg: Mapping[str, Any]) -> list[str]:
    count = cfg.get("num_val_samples_to_print")
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 0):
        return []
    return [f"num_val_samples_to_print: expected a whole number from 0 on, got {count!r:.80}."]


def _with_variables(section: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    from_environment = {key: environ.get(variable) for key, variable in _MLFLOW_VARIABLES.items()}
    # The section wins over the variables, as in NeMo RL.
    return {**section, **{key: section.get(key) or value for key, value in from_environment.items()}}


def _say_unused(sections: Mapping[str, Mapping[str, Any]]) -> None:
    for name, section in sections.items():
        for key in sorted(key for key, value in section.items() if key not in _USED[name] and value is not None):
            say("setting-unused", f"{name}.{key} of the Logger's configuration is not used by otel_ml.")


def _first(sections: Mapping[str, Mapping[str, Any]], places: Sequence[tuple[str, str]]) -> str | None:
    found: Sequence[Any] = [sections.get(section, {}).get(key) for section, key in places]
    return next((str(value) for value in found if value), None)


def _name(sections: Mapping[str, Mapping[str, Any]]) -> str | None:
    given = dict.fromkeys(str(sections[name][key]) for name, key in _NAMES if sections.get(name, {}).get(key))
    if len(given) > 1:
        first, *others = given
        say("setting-unused", f"A run has one name in every backend: {first!r} is used, and not {', '.join(others)}.")
    return next(iter(given), None)


def _environment(
    wandb: Mapping[str, Any], mlflow: Mapping[str, Any], log_dir: Path, environ: Mapping[str, str]
) -> Mapping[str, str]:
    wanted = {
        # Said apart: the run's experiment is MLflow's where that has a name, and W&B's project stays what it is.
        "WANDB_PROJECT": wandb.get("project"),
        "WANDB_ENTITY": wandb.get("entity"),
        "WANDB_RUN_GROUP": wandb.get("group"),
        "WANDB_JOB_TYPE": wandb.get("job_type"),
        "WANDB_MODE": wandb.get("mode"),
        "MLFLOW_TRACKING_URI": mlflow.get("tracking_uri"),
        # Where somebody chose a folder for all runs, that choice stands.
        "OTEL_ML_DIR": environ.get("OTEL_ML_DIR", log_dir),
    }
    return {name: str(value) for name, value in wanted.items() if value}


def should_log_nemo_gym_full_result_tables(*, wandb_enabled: bool, wandb_config: WandbConfig) -> bool:
    """Return whether W&B is on and its section has `log_nemo_gym_full_result_tables: true`, which is off by default.

    What the rollouts then give to `Logger.log_metrics()` is a table in every backend.

    Examples:
        >>> should_log_nemo_gym_full_result_tables(wandb_enabled=True, wandb_config={"project": "grpo-dev"})
        False
    """
    return wandb_enabled and bool(wandb_config.get("log_nemo_gym_full_result_tables", False))
