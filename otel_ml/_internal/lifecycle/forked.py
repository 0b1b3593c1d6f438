"""What a forked child lets go of: its parent's threads, locks, sockets and buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from otel_ml._internal.boot_time import boot_time
from otel_ml._internal.devices.graphs import CAPTURED
from otel_ml._internal.events.queue import EVENTS
from otel_ml._internal.guard import guard
from otel_ml._internal.identity.run_identity import Identity, new_instance
from otel_ml._internal.lifecycle.worker import Worker
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_the_end import AFTER_THE_END

__all__ = ["child_of", "forget_parent"]


def forget_parent(workers: Iterable[Worker | None]) -> None:
    """Be as a process that has recorded nothing; `workers` are those of the parent's runs."""
    recorder.forget()
    CAPTURED.forget()
    EVENTS.forget()
    guard.forget()
    guard.connect(None)
    AFTER_THE_END.forget()
    for worker in workers:
        if worker is not None:
            worker.forget()


def child_of(parent: Identity) -> Identity:
    """Return a child's own identity."""
    return replace(parent, instance=new_instance(), parent=parent.instance, starter=parent.instance, born=boot_time())
