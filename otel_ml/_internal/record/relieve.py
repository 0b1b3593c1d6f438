"""A tight loop waits until what it has recorded is folded, and there is room for more."""

from __future__ import annotations

import time
from collections.abc import Callable

from otel_ml._internal.own_threads import is_own_thread
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.series.buffer import MOST, RECORDS

__all__ = ["relieve"]


def relieve() -> None:
    """Wait until the records are folded, and there is room for more: what bounds the memory of a tight loop.

    While somebody folds already, callers go on, up to a bound: several threads may record faster than one can fold.

    Not on the caller's own thread: a signal handler runs in the middle of what the main thread does, and may raise
    there, or wait for the background thread, which waits for the fold. An interrupted wait loses nothing. A finalizer
    may even run on the threads that are waited for here: those go on, and take what it recorded with the next look.
    """
    # Whoever waits here must not be one of those that are waited for: a thread of ours, or one that holds what the
    # fold needs. While somebody folds, callers go on up to a bound.
    if (
        is_own_thread()
        or BACKPRESSURE.is_here()
        or FOLDER.is_held_here
        or (FOLDER.lock.locked() and len(RECORDS) < MOST)
    ):
        return
    begin = time.perf_counter()
    try:
        _have_done(_fold)
        _wait_for_space()
    finally:
        FOLDER.caller_s += time.perf_counter() - begin


def _wait_for_space() -> None:
    if len(FOLDER.deferred) > FOLDER.MAX_DEFERRED // 2:
        BACKPRESSURE.wait()
    while FOLDER.points > FOLDER.most_points or BACKPRESSURE.is_held_up:
        if not BACKPRESSURE.wait():
            _have_done(_drop_oldest)
            return


def _have_done(work: Callable[[], None]) -> None:
    """Wait until another thread has done `work`, or a part of it: the system may give us no thread."""
    try:
        task = FOLDER.background.begin(work)
    except RuntimeError:
        # No thread to be had: the run's background thread will fold; wait for it instead.
        BACKPRESSURE.wait()
    else:
        task.outcome()


def _fold() -> None:
    with FOLDER.lock:
        FOLDER.fold()


def _drop_oldest() -> None:
    with FOLDER.lock, FOLDER.taking:
        FOLDER.drop_oldest()
