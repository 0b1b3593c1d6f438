"""The end of a Ray driver: what is left of the job is on its disks, and known to be ended, before Ray kills it.

::

    driver                                          service                     processes of tasks and actors
    ray.shutdown(), or exit ── `ml.started.end` ──▶ expects no last message
                            ── 0.25 s, then Ray ──────────────────────────────▶ `_exit()` in C++
"""

from __future__ import annotations

import atexit
import functools
import sys
import time
from typing import Any

from otel_ml import env
from otel_ml._internal.lifecycle.exit_code import status_of_error
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.config import Config
from otel_ml.integrations import ray_service

__all__ = ["end_gently", "end_others"]

_ON_DISK_S = 0.25
"""Seconds after which what any process recorded is in its spool, which is written every 0.1 s."""

_SAID_S = 2.0
"""Seconds for the word to the service that Ray ends the workers now."""


def end_others() -> None:
    """Note that the processes which this one starts end with it."""
    if (session := RUNTIME.current) is not None:
        session.ends_others = True


def _dismiss_others() -> None:
    """Say that they are ended now, and wait until that is known; of a program that fails they may be the reason."""
    # At exit the exception is gone from `exc_info()`, and the interpreter has left it in `last_value`.
    session, error = RUNTIME.current, sys.exc_info()[1] or getattr(sys, "last_value", None)
    if session is not None and session.ends_others and status_of_error(error) == "finished":
        session.dismiss_others()
        session.flush(_SAID_S)


def end_gently() -> None:
    """Wait, before Ray kills what is left of the job, until what it recorded last is on its disks."""
    import ray

    if getattr(ray.shutdown, "waits_for_otel_ml", False):
        return
    shutdown = ray.shutdown

    def wait() -> None:
        if ray.is_initialized():
            _dismiss_others()
            time.sleep(_ON_DISK_S + (_sent_after_s() if ray_service.is_hosted() else 0.0))

    @functools.wraps(shutdown)
    def gentle(*arguments: Any, **options: Any) -> Any:
        wait()
        return shutdown(*arguments, **options)

    gentle.waits_for_otel_ml = True  # type: ignore[attr-defined]
    ray.shutdown = gentle
    atexit.register(wait)  # before Ray's own, which was registered earlier


def _sent_after_s() -> float:
    """Wait for the hosted service, and return the seconds after which everything is sent to it.

    On nodes where Ray kills every process of the job nobody is left who could bring what is on their disks.
    """
    if RUNTIME.is_active:  # else to ask for its id would begin a run
        ray_service.wait_for_service(RUNTIME.child_env().get(env.EXPERIMENT_ID.name, ""))  # "": it has ended meanwhile
    return Config.from_env().flush_interval
