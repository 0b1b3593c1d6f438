"""Whether there is a run for what is recorded: as in torchforge, a value begins none by itself."""

from __future__ import annotations

import os

from otel_ml import env
from otel_ml._internal.runtime import RUNTIME
from otel_ml._internal.wake import is_asked_for

__all__ = ["has_run"]


def has_run() -> bool:
    """Return whether a run is active, or this process was told of its job's: it has the variables of `child_env()`.

    A controller may record before its `init_backends()`, which says what the run is: variables that name one, or say
    where runs go, would begin another.
    """
    return RUNTIME.is_active or (env.PARENT.name in os.environ and is_asked_for())
