"""Send what dead processes of a job left on this host to the job's endpoint (`otel-ml recover`)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from otel_ml._internal.error_reporting import Say
from otel_ml._internal.transport.link import transport_to
from otel_ml._internal.transport.recover_spools import recover_spools
from otel_ml._internal.transport.send_errors import OBSTACLES
from otel_ml.config import Endpoint
from otel_ml.exceptions import VersionError, WireError

__all__ = ["LOSSES", "Sent", "send_leftovers"]

LOSSES = frozenset({"request-too-large", "receiver-refused", "rejected-points", "damaged-data"})
"""What `say` is told where something of it is lost."""


class Sent(NamedTuple):
    """What was done.

    Attributes:
        is_done: nothing is left of dead processes.
        spools: how many were sent; those that went meanwhile otherwise are not among them.
    """

    is_done: bool
    spools: int


def send_leftovers(spools: Path, endpoint: Endpoint, timeout: float, say: Say) -> Sent:
    """Send the spools of a run's dead processes and delete what was acknowledged.

    Files of processes that live are left to them.

    Args:
        spools: the folder in which they left them.
        endpoint: a Collector or `otel-ml serve`.
        timeout: seconds.
        say: told what the receiver refuses for good, and which files cannot be read.

    Raises:
        MissingDependencyError: gRPC is asked for and grpcio is not installed.
    """
    transport = transport_to(endpoint)
    deadline = time.monotonic() + timeout
    is_final = False
    sent = 0

    def count() -> None:
        nonlocal sent
        sent += 1

    def heard(slug: str, sentence: str) -> None:
        nonlocal is_final
        # Several things may be said in one try: one that is final is enough.
        is_final |= slug in _FINAL
        say(slug, sentence)

    try:
        while not (is_done := recover_spools(spools, transport, deadline, heard, count)):
            # Not slept to the deadline: the last try would have no time left.
            if is_final or time.monotonic() + _PAUSE_S >= deadline:
                break
            time.sleep(_PAUSE_S)
        return Sent(is_done, sent)
    finally:
        transport.close()


_FINAL = OBSTACLES | {VersionError.slug, WireError.slug}
"""What another try would not change."""

_PAUSE_S = 1.0
"""Between tries, while the receiver does not answer or asks to wait."""
