"""The functions of the module `wandb`, which act on the run of the process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import options_not_kept
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.definitions import Metric
from otel_ml.compat.wandb.start import run_or_begin, state

__all__ = [
    "AlertLevel",
    "alert",
    "define_metric",
    "ensure_configured",
    "finish",
    "link_model",
    "log",
    "log_artifact",
    "log_code",
    "log_model",
    "mark_preempting",
    "restore",
    "save",
    "setup",
    "teardown",
    "unwatch",
    "use_artifact",
    "use_model",
    "watch",
]


class AlertLevel(Enum):
    """Of an alert; recorded as its text."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


def log(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None) -> None:
    """Record a row, see `Run.log()`."""
    # `state.run` first: this is called at each step.
    (state.run or run_or_begin()).log(data, step, commit, sync)


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
    return run_or_begin().define_metric(name, step_metric, step_sync, hidden, summary, overwrite, goal)


def log_artifact(
    artifact_or_path: Any,
    name: str | None = None,
    type: str | None = None,  # noqa: A002 (W&B's name)
    aliases: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
) -> Artifact:
    """Record an artifact, a file or a folder."""
    return run_or_begin().log_artifact(artifact_or_path, name, type, aliases, tags)


def log_model(path: Any, name: str | None = None, aliases: Iterable[str] | None = None) -> Artifact:
    """Record a model's files."""
    return run_or_begin().log_model(path, name, aliases)


def save(glob_str: Any = None, base_path: Any = None, policy: str = "live", glob: bool = True) -> list[str]:
    """Record the files that match now; with `glob=False` the one file of that name."""
    return run_or_begin().save(glob_str, base_path, policy, glob)


def use_artifact(
    artifact_or_name: Any,
    type: str | None = None,  # noqa: A002 (W&B's name)
    aliases: Iterable[str] | None = None,
    use_as: str | None = None,
) -> Any:
    """Return an artifact, see `Run.use_artifact()`."""
    return run_or_begin().use_artifact(artifact_or_name, type, aliases, use_as)


def use_model(name: str) -> str:
    """Return the path of a model, see `Run.use_model()`."""
    return run_or_begin().use_model(name)


def link_model(
    path: Any, registered_model_name: str, name: str | None = None, aliases: Iterable[str] | None = None
) -> Artifact:
    """Record a model, see `Run.link_model()`."""
    return run_or_begin().link_model(path, registered_model_name, name, aliases)


def restore(name: str, run_path: str | None = None, replace: bool = False, root: str | None = None) -> None:
    """Return None, see `Run.restore()`."""
    run_or_begin().restore(name, run_path, replace, root)


def log_code(root: Any = ".", **options: Any) -> Artifact | None:
    """Record the code below a folder, see `Run.log_code()`."""
    return run_or_begin().log_code(root, **options)


def alert(title: str, text: str = "", level: Any = None, wait_duration: Any = None) -> None:
    """Record an event `alert`."""
    run_or_begin().alert(title, text, level, wait_duration)


def watch(
    models: Any,
    criterion: Any = None,
    log: str | None = "gradients",
    log_freq: int = 1000,
    idx: int | None = None,
    log_graph: bool = False,
) -> list[Any]:
    """Record how the gradients or the parameters of torch models are distributed, see `Run.watch()`."""
    return run_or_begin().watch(models, criterion, log, log_freq, idx, log_graph)


def unwatch(models: Any = None) -> None:
    """Look at the gradients of these models no longer, or of all."""
    if state.run is not None:
        state.run.unwatch(models)


def mark_preempting() -> None:
    """Record an event `preempting`."""
    run_or_begin().mark_preempting()


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run, if there is one."""
    if state.run is not None:
        state.run.finish(exit_code, quiet)


def setup(settings: Any = None) -> None:
    """Do nothing, and say which settings are not kept: the service starts with the run."""
    given = settings if isinstance(settings, Mapping) else getattr(settings, "__dict__", {})
    options_not_kept(
        "wandb.setup", "give init() the settings.", **{text_of(name): value for name, value in given.items()}
    )


def ensure_configured() -> None:
    """Do nothing."""


def teardown(exit_code: int | None = None) -> None:
    """End the run, if there is one."""
    finish(exit_code)
