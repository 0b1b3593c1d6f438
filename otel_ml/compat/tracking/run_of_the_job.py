"""Whether there is a run for what is recorded before a logger of the framework begins one: nothing does by itself."""

from __future__ import annotations

import os
import sys

from otel_ml import env
from otel_ml._internal.lifecycle.run_requested import is_run_requested
from otel_ml._internal.lifecycle.runtime import RUNTIME

__all__ = ["has_run"]


def has_run() -> bool:
    """Return whether a run is active, or the environment asks this process to join that of its job.

    A driver records before it has its logger, NeMo RL's `Logger` or forge's `init_backends()`: where variables name a
    run, or say where runs go, that would begin one that is not the one meant. So it is joined only by who makes no
    logger: a process that was started by one of a run, or has the variables of `otel_ml.child_env()`, and an actor of
    Ray.
    """
    if RUNTIME.is_active:
        return True
    return (env.PARENT.name in os.environ or _is_actor()) and is_run_requested()


def _is_actor() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
