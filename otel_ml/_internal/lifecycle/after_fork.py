"""What a forked child lets go of: its parent's threads, locks, sockets and buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from otel_ml._internal.boot_clock import seconds_since_boot
from otel_ml._internal.devices.cuda_graphs import CAPTURED
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.event_queue import EVENTS
from otel_ml._internal.identity.run_identity import Identity, new_instance
from otel_ml._internal.lifecycle.worker import Worker
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN

__all__ = ["child_of", "forget_parent"]


def forget_parent(workers: Iterable[Worker | None]) -> None:
    """Be as a process that has recorded nothing; `workers` are those of the parent's runs."""
    recorder.forget()
    CAPTURED.forget()
    EVENTS.forget()
    reporter.forget()
    reporter.connect(None)
    AFTER_SHUTDOWN.forget()
    for worker in workers:
        if worker is not None:
            worker.forget()


def child_of(parent: Identity) -> Identity:
    """Return a child's own identity."""
    return replace(
        parent, instance=new_instance(), parent=parent.instance, starter=parent.instance, born=seconds_since_boot()
    )
