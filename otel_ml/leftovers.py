"""What dead processes of a run left on this host, on its way to the endpoint they had: for `otel-ml recover`."""

from __future__ import annotations

import time
from collections.abc import Callable

from otel_ml._internal.link import transport_to
from otel_ml._internal.recover import recover_spools
from otel_ml.config import Config
from otel_ml.wire.rendezvous import rendezvous_of

__all__ = ["send_leftovers"]

_AGAIN_S = 1.0
"""Seconds between attempts where the endpoint does not take anything now."""


def send_leftovers(run_id: str, config: Config, timeout: float, say: Callable[[str], None]) -> bool:
    """Send every spool of the run whose writer is dead to `config.endpoint`, and delete it when it was taken.

    Args:
        run_id: experiment id.
        config: whose endpoint is meant.
        timeout: seconds it may take.
        say: told what the receiver will never take.

    Returns:
        Whether nothing is left.

    Raises:
        MissingDependencyError: gRPC is asked for and grpcio is not installed.
    """
    rendezvous = rendezvous_of(run_id)
    transport = transport_to(config.endpoint)
    deadline = time.monotonic() + timeout
    try:
        while not (is_sent := recover_spools(rendezvous.spool, transport, deadline, say)):
            if time.monotonic() + _AGAIN_S >= deadline:
                break
            time.sleep(_AGAIN_S)
    finally:
        transport.close()
        rendezvous.remove()
    return is_sent
