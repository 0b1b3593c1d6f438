"""What records, loaded together at the first use of any of it; armed where the environment asks for a run."""

from __future__ import annotations

import os
import sys

from otel_ml._internal.compiled.dynamo import watch_for_compilation
from otel_ml._internal.lifecycle.run_requested import is_run_requested, is_worker, may_join_rank_zero
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.series import buffer
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.steps.current import current_step
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.manual_timer import timer
from otel_ml._internal.timers.step_loop import steps
from otel_ml._internal.timers.timing import timed

__all__ = [
    "arm",
    "current_step",
    "define_metric",
    "get_meter",
    "log",
    "record",
    "set_step",
    "step",
    "steps",
    "timed",
    "timer",
]


def arm() -> None:
    """Let a record begin the run, if the environment asks for one, or rank 0 of the launch or the parent may.

    Also where one has ended: a process whose framework has it do something else is in another run.
    """
    if is_run_requested() or may_join_rank_zero(os.environ) or is_worker():
        AFTER_SHUTDOWN.leave()
        _sleep()


def _sleep() -> None:
    recorder.enabled = True
    buffer.sleep()


def _after_fork_in_child() -> None:
    """Let a record ask for the parent's run, which the parent may begin later; once it has had one, that is known."""
    if "otel_ml._internal.lifecycle.runtime" not in sys.modules:
        # As `after_fork.forget_parent()` does it where there was a run: a step that the parent has set is not the
        # child's, the ids of its spans are not to be those of the parent's, and a thread may have held a lock. The lock
        # that `forget()` takes comes first.
        FOLDER.forget_threads()
        recorder.forget()
        _sleep()


def _begin_run() -> bool:
    from otel_ml._internal.lifecycle.runtime import RUNTIME  # which begins runs from now on

    return RUNTIME.begin_where_asked()


buffer.begin_with(_begin_run)
arm()
os.register_at_fork(after_in_child=_after_fork_in_child)
watch_for_compilation()
