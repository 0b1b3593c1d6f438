"""Work that recording leaves to the background thread: what to call, and at which step.

The thread does all that waits in one go, so that its code and data are in the caches for all but the first. On the
training thread, where training has pushed them out, the same work costs several times as much (ADR 0019).
"""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns
from typing import Any

from otel_ml._internal.append import append
from otel_ml._internal.axes import NOW, current_step
from otel_ml._internal.call import Call
from otel_ml._internal.guard import guard
from otel_ml._internal.step import step_for

__all__ = ["later"]


def later(function: Callable[..., None], *arguments: Any, step: int | None = None) -> Call | None:
    """Have `function` called by the background thread; what it records belongs to `step`, or to that of now.

    What it is given must not change until then. It records by `Measure`, or says a step: `log()` and `Metric.record()`
    take that of the process, which has gone on. Under `OTEL_ML_STRICT=true` it is called at once, so that what is
    wrong is raised where it was recorded; while recording is off never.
    """
    if NOW.off:
        return None
    at = current_step() if step is None else step_for(step, None, f"{function.__qualname__}()", 1)
    if at is None:
        return None
    call = Call(function, arguments)
    if guard.strict:
        call.run(at)
    else:
        append([call, at, None, time_ns()])
    return call
