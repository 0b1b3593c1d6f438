"""Lets training have the interpreter between two pieces of work of a background thread.

A thread that computes keeps the interpreter until somebody has waited `sys.getswitchinterval()` for it, 5 ms: as long
as training may be held up at all, and as many a step takes. Two such threads in a row keep it for twice that.
"""

from __future__ import annotations

import threading
from time import sleep, thread_time_ns

__all__ = ["has_rested", "yield_interpreter"]

PIECE_NS = 500_000
"""CPU time after which a thread has worked for long enough: less often would be felt, more often costs wake-ups."""

PAUSE_S = 50e-6
"""Long enough for a thread that waits to be woken, and to take it: after `sleep(0)` it usually comes too late."""


class _Turn(threading.local):
    """This thread's CPU time when it last let others go on."""

    began_ns = 0


_TURN = _Turn()


def has_rested() -> None:
    """Take note that this thread has just waited for something: others had the interpreter meanwhile."""
    _TURN.began_ns = thread_time_ns()


def yield_interpreter() -> None:
    """Pause for a moment, if this thread has worked for long since it last did; else cost half a microsecond."""
    if thread_time_ns() - _TURN.began_ns >= PIECE_NS:
        sleep(PAUSE_S)
        has_rested()
