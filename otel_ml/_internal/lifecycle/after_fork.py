"""What a forked child lets go of, its parent's threads, locks, sockets and buffers, and what it goes on with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from otel_ml._internal.devices.cuda_graphs import CAPTURED
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.event_queue import EVENTS
from otel_ml._internal.identity.run_identity import Identity, new_instance
from otel_ml._internal.lifecycle.session import Session
from otel_ml._internal.lifecycle.worker import Worker
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.record.fold import FOLDER
from otel_ml.wire.boot_clock import seconds_since_boot

__all__ = ["forget_parent", "sleeps_on"]


def forget_parent(workers: Iterable[Worker | None]) -> None:
    """Be as a process that has recorded nothing; `workers` are those of the parent's runs."""
    # First: `recorder.forget()` takes a lock that another thread of the parent may have held.
    FOLDER.forget_threads()
    recorder.forget()
    CAPTURED.forget()
    EVENTS.forget()
    reporter.forget()
    # What the child has to say is kept until it has a background thread of its own that says it.
    reporter.connect(None)
    AFTER_SHUTDOWN.forget()
    for worker in workers:
        if worker is not None:
            worker.forget()


def sleeps_on(session: Session, worker: Worker | None) -> bool:
    """Have a run of the parent begin in its child with the first record; return whether it does.

    Args:
        session: of the run.
        worker: what the parent recorded into it with, if it did.
    """
    if worker is not None:
        session.sleep_as(_child_of(worker.identity))
    elif session.is_asleep:  # as its parent, which has recorded nothing, it is a child of the parent's parent
        session.sleep_as(replace(_child_of(session.identity), parent=session.identity.parent))
    return session.is_asleep


def _child_of(parent: Identity) -> Identity:
    """Return a child's own identity."""
    return replace(
        parent, instance=new_instance(), parent=parent.instance, starter=parent.instance, born=seconds_since_boot()
    )
