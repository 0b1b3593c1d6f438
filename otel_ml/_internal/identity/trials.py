"""Which trial of a search this process does, and which training of a Ray job: each is a run of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from otel_ml._internal.error_reporting import reporter

__all__ = ["ray_train_run", "trial"]


def ray_tune() -> str:
    """Ray Tune's id of the trial, of a function or of a `Trainable`."""
    train, tune = sys.modules.get("ray.train._internal.session"), sys.modules.get("ray.tune.trainable")
    session = train.get_session() if train is not None else None
    if session is not None:
        return str(session.trial_id or "")
    actor = _ray_actor()
    is_trainable = tune is not None and isinstance(actor, tune.Trainable)
    return str(actor.trial_id) if is_trainable else ""


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


def _ray_train_run() -> Any:
    context = getattr(sys.modules.get("ray.train.v2._internal.execution.context"), "_train_context", None)
    return None if context is None else context.train_run_context


def hydra_multirun() -> str:
    """The number of Hydra's job in a sweep, with any of its launchers."""
    module = sys.modules.get("hydra.core.hydra_config")
    if module is None or not module.HydraConfig.initialized():
        return ""
    config = module.HydraConfig.get()
    is_sweep = getattr(config.mode, "name", "") == "MULTIRUN"
    return str(config.job.num) if is_sweep else ""


DETECTORS: tuple[Callable[[], str], ...] = (ray_train_in_tune, ray_tune, hydra_multirun)


def trial() -> str:
    """Return what tells this trial from the others of its job; empty where there are no others.

    Only what is imported already is asked: nothing of it is installed with otel_ml.
    """
    try:
        return next((found for detector in DETECTORS if (found := detector())), "")
    except Exception as error:  # noqa: BLE001 (interfaces of others, some of which they do not promise)
        reporter.say("unknown-trial", f"It cannot be told which trial this is: {type(error).__name__}: {error}.")
        return ""
