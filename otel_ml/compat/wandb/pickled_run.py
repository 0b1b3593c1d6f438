"""A run that travels in a pickle: as its id, by which the other process finds it again.

W&B's client sends a run to a process that `multiprocessing` starts, which records into the run with it; there a run
that arrives in the process that began it, or in one that knows nothing of it, raises.
"""

from __future__ import annotations

import copyreg
import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from otel_ml import env
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.disabled_run import DisabledRun
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.recording_run import Run
from otel_ml.compat.wandb.run_facts import InitArguments
from otel_ml.compat.wandb.start import attach, state

__all__ = ["arrived"]

_Reduced = tuple[Callable[..., Run], tuple[str, InitArguments, dict[str, Any], int]]


def _as_id(run: Run) -> _Reduced:
    return arrived, (run.id, run._asked, run.config.as_dict(), run.next_step)  # noqa: SLF001 (one package)


copyreg.pickle(Run, _as_id)  # for this class alone: a disabled run has nothing to be found by, and travels as it is


def arrived(run_id: str, asked: InitArguments, config: Mapping[str, Any], next_step: int) -> Run:
    """Return the run of this process that has the id, in another process of the job the job's; else one of no run.

    Args:
        run_id: of the run.
        asked: what it was begun with.
        config: its parameters at the time, which the run of another process has from the start.
        next_step: at which the rows of another process begin.
    """
    # Also a run that has ended, as long as somebody holds it: it says so itself where something is recorded with it.
    known = state.run_with(run_id)
    if known is not None:
        return known
    if _is_of_the_job(run_id):
        return attach(run_id, asked, config, next_step)
    not_kept(
        f"pickle.load() of the wandb.Run {run_id!r}",
        f"UsageError: Unable to attach to run {run_id}, which is of another job. What it is given is not recorded.",
    )
    nowhere: Any = SimpleNamespace(
        id=run_id, name=asked.name or "", experiment=asked.project, dir=None, rank=0, urls={}
    )
    return DisabledRun(nowhere, Config.of(config), asked, next_step, _leave)


def _is_of_the_job(run_id: str) -> bool:
    # A process that has no run yet knows its job by the variable that a run hands to its children.
    return RUNTIME.is_current({run_id}) if RUNTIME.is_active else os.environ.get(env.EXPERIMENT_ID.name) == run_id


def _leave(run: Run) -> None:
    del run  # it was the run of nobody
