"""Which threads the kernel gives a signal to: never one of ours.

A program that blocks a signal, while it writes a checkpoint perhaps, blocks it in its own threads. Were one of ours to
take it, its handler would run all the same, and end the program there.
"""

from __future__ import annotations

import signal

__all__ = ["ENDING_SIGNALS", "leave_signals_to_the_program"]

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals before whose effect what was recorded is brought to safety: schedulers warn of preemptions by any of them."""


def leave_signals_to_the_program() -> None:
    """Take none on this thread, which is one of ours."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
