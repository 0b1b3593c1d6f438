"""Which trial of a search this process does, and which training of a Ray job: each is a run of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_ml._internal.error_reporting import reporter

__all__ = [
    "SearchedTrial",
    "is_work_for_trial",
    "ray_train_rank",
    "ray_train_run",
    "searched_trial",
    "trainable",
    "trial",
    "work_for_trial",
]


@dataclass(frozen=True, slots=True)
class SearchedTrial:
    """What a search says of one of its trials.

    Attributes:
        name: what the search calls it; empty where it has no name.
        params: its configuration, as it is now.
    """

    name: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


def searched_trial() -> SearchedTrial:
    """Return what Ray Tune says of the trial that this process does; nothing where it does none."""
    if not trial():
        return SearchedTrial()
    session, actor = _tune_session(), trainable()
    # A function of Ray Tune has a session; a `Trainable` is itself the actor that knows its trial.
    of_trial = session if session is not None else actor
    return SearchedTrial(str(getattr(of_trial, "trial_name", "") or ""), dict(getattr(actor, "config", None) or {}))


def ray_tune() -> str:
    """Ray Tune's id of the trial, of a function or of a `Trainable`."""
    session = _tune_session()
    return str(getattr(trainable() if session is None else session, "trial_id", "") or "")


def _tune_session() -> Any:
    module = sys.modules.get("ray.train._internal.session")
    return None if module is None else module.get_session()


def trainable() -> Any:
    """Return the actor of Ray Tune that this process is, also before it is told which trial it does; else None."""
    tune, actor = sys.modules.get("ray.tune.trainable"), _ray_actor()
    return actor if tune is not None and isinstance(actor, tune.Trainable) else None


def _ray_actor() -> Any:
    """Return the actor that this process is, also while it is being made."""
    worker = sys.modules.get("ray._private.worker")
    actors = worker.global_worker.actors if worker is not None else {}
    return next(iter(actors.values()), None)


def ray_train_run() -> str:
    """Return Ray Train's id of what one `fit()` does, over all its restarts; empty outside its workers."""
    run = _ray_train_run()
    return "" if run is None else str(run.run_id)[:8]


def ray_train_in_tune() -> str:
    """The training that a trial of Ray Tune has begun, whose workers are not told of the trial."""
    run = _ray_train_run()
    callbacks = (run.run_config.callbacks if run is not None else None) or ()
    return ray_train_run() if any(type(one).__name__ == "TuneReportCallback" for one in callbacks) else ""


def ray_train_rank() -> tuple[int, int, int] | None:
    """Return rank, world size and local rank of a worker of Ray Train, whose backend need not set variables."""
    context = _ray_train_context()
    if context is None:
        return None
    return context.get_world_rank(), context.get_world_size(), context.get_local_rank()


def _ray_train_run() -> Any:
    context = _ray_train_context()
    return None if context is None else context.train_run_context


def _ray_train_context() -> Any:
    return getattr(sys.modules.get("ray.train.v2._internal.execution.context"), "_train_context", None)


def hydra_multirun() -> str:
    """The number of Hydra's job in a sweep, with any of its launchers."""
    module = sys.modules.get("hydra.core.hydra_config")
    if module is None or not module.HydraConfig.initialized():
        return ""
    config = module.HydraConfig.get()
    is_sweep = getattr(config.mode, "name", "") == "MULTIRUN"
    return str(config.job.num) if is_sweep else ""


DETECTORS: tuple[Callable[[], str], ...] = (ray_train_in_tune, ray_tune, hydra_multirun)


class _Work:
    """What this process does.

    Attributes:
        is_for_trial: a trial has it work in the trial's run, which its environment names by now.
    """

    is_for_trial = False


_WORK = _Work()


def work_for_trial(*, is_so: bool) -> None:
    """Note whether this process works in the run of a trial that it does not do itself."""
    _WORK.is_for_trial = is_so


def is_work_for_trial() -> bool:
    """Whether `work_for_trial()` has said so."""
    return _WORK.is_for_trial


def trial() -> str:
    """Return what tells this trial from the others of its job; empty where there are no others.

    Only what is imported already is asked: nothing of it is installed with otel_ml.
    """
    if _WORK.is_for_trial:
        return ""
    try:
        return next((found for detector in DETECTORS if (found := detector())), "")
    except Exception as error:  # noqa: BLE001 (interfaces of others, some of which they do not promise)
        reporter.say("unknown-trial", f"It cannot be told which trial this is: {type(error).__name__}: {error}.")
        return ""
