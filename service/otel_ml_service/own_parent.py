"""A job's own service is nobody's child: a program that waits for all its children waits for its own alone."""

from __future__ import annotations

import os
import time
from typing import NoReturn

from otel_ml.exceptions import OtelMLError
from otel_ml.wire.rendezvous import Rendezvous
from otel_ml_service.exit_status import exit_status

__all__ = ["leave_starter"]

_LOOK_S = 0.02
"""Seconds between looks whether the service is announced, in a process that does nothing else."""


def leave_starter(rendezvous: Rendezvous) -> int:
    """Go on in a process of one's own; the one that was started ends when that is announced, or with its exit code.

    Returns the process id of the one that was started, whose session it stays in.

    The service ends when the run does, and the run when its processes have: one of them that waits for the service
    would wait for ever.
    """
    # Called before there are threads: the new process would have none but the one that forks.
    starter = os.getpid()
    service = os.fork()
    if service:
        _stand_in(service, rendezvous)
    return starter


def _stand_in(service: int, rendezvous: Rendezvous) -> NoReturn:
    while True:
        # A service that fails before it is announced passes on its exit code to whoever started it.
        ended, status = os.waitpid(service, os.WNOHANG)
        if ended:
            os._exit(exit_status(os.waitstatus_to_exitcode(status)))
        if _is_announced(service, rendezvous):
            os._exit(0)
        time.sleep(_LOOK_S)


def _is_announced(service: int, rendezvous: Rendezvous) -> bool:
    try:
        announced = rendezvous.read_service()
    except OtelMLError:  # of another version
        return False
    return announced is not None and announced.pid == service
