"""Threads of ours, which others wait for: never does one of them wait for itself or for another one.

A finalizer runs on whatever thread the garbage collector has come to, and may record, flush or end the run there.
"""

from __future__ import annotations

import threading
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import wraps
from typing import ParamSpec

from otel_ml._internal.signal_mask import leave_signals_to_the_program

__all__ = ["begin_own_thread", "is_own_thread", "on_another_thread"]

P = ParamSpec("P")


class _Here(threading.local):
    """What is known of this thread."""

    is_own = False


_HERE = _Here()


def begin_own_thread() -> None:
    """Be one of ours from now on: what it is asked to wait for does not happen while it waits."""
    leave_signals_to_the_program()
    _HERE.is_own = True


def is_own_thread() -> bool:
    """Whether this is one of ours."""
    return _HERE.is_own


def on_another_thread(call: Callable[P, bool]) -> Callable[P, bool]:
    """Return `call`, which waits for our threads: on one of these it is begun on another one, and returns False."""

    @wraps(call)
    def waited_for(*args: P.args, **kwargs: P.kwargs) -> bool:
        if not _HERE.is_own:
            return call(*args, **kwargs)

        def work() -> None:
            leave_signals_to_the_program()
            call(*args, **kwargs)

        context = copy_context()  # which says whose run is meant
        # Where the system gives no thread nothing is lost: the run ends with the process at the latest.
        with suppress(RuntimeError):
            start_new_thread(context.run, (work,))
        return False

    return waited_for
