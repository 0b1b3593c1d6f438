"""Runs a service until a signal ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping

from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.registry import is_registered
from otel_ml_service.config import ServiceConfig
from otel_ml_service.live_runs.served_settings import served_as
from otel_ml_service.process_limits import (
    allow_open_files,
    keep_freed_memory,
    let_training_go_first,
    look_for_garbage_rarely,
)
from otel_ml_service.service import Service

__all__ = ["serve"]

_OF_PEOPLE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

_POLL_S = 0.2
"""A signal handler cannot wake a wait on another event; this is how long it takes to be seen."""


def serve(
    config: ServiceConfig,
    started: Callable[[Service], None] = lambda service: None,
    *,
    makers: Mapping[str, Callable[[], Exporter]] | None = None,
    pages: str = "",
    starter: int = 0,
) -> None:
    """Run a service until SIGTERM or, unless embedded, SIGINT; call from the main thread.

    Args:
        config: what to do.
        started: called once the service listens.
        makers: exporters the program brings itself.
        pages: address of the pages of runs, to be announced; empty where none are offered.
        starter: the process that a job has started as its service; it may have left.
    """
    allow_open_files()
    keep_freed_memory()
    written = {name: options for name, options in config.written.items() if is_registered(name)}
    served = served_as(written, os.environ, config.file, is_of_serve=config.embedded is None)
    service = Service(config, makers=makers, served=served, pages=pages)
    asked = threading.Event()

    def ask(*_: object) -> None:
        asked.set()

    signal.signal(signal.SIGTERM, ask)
    # Ctrl-C in the terminal of a job reaches every process; the embedded service still has to deliver.
    signal.signal(signal.SIGINT, signal.SIG_IGN if config.embedded else ask)
    # A thread that takes no signals may have started this process, which would take none either.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_PEOPLE)
    service.start()
    started(service)
    look_for_garbage_rarely()
    if config.embedded:
        let_training_go_first(starter)  # not before: a start is waited for
    try:
        while not asked.is_set() and not service.wait(_POLL_S):
            pass
    finally:
        service.stop()
