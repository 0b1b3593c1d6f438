"""Be the only one of this host that serves a run, or begins to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from otel_ml.wire.rendezvous import Rendezvous

__all__ = ["alone"]


@contextmanager
def alone(rendezvous: Rendezvous) -> Iterator[bool]:
    """Hold the right to serve the run; False where another process has it."""
    handle = rendezvous.acquire()
    if handle is None:
        yield False
        return
    try:
        yield not rendezvous.is_served()
    finally:
        os.close(handle)
