"""One process, many tests: the record path as if the process had just begun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from otel_ml._internal.devices.cuda_graphs import CAPTURED
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.messages.recorder import RecordSettings, recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.record.log import forget_names
from otel_ml._internal.series import buffer
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml._internal.timers.manual_timer import forget_timers

__all__ = ["forget_everything", "isolated"]


@contextmanager
def isolated() -> Iterator[None]:
    """Know nothing inside of what was recorded before, and nothing afterwards of what was inside.

    What `define_metric()` said before, in a module that was imported, is known inside and after.
    """
    # Copies, as what is declared inside is added to these same objects.
    declared, timers = list(DEFINITIONS.declared), dict(DEFINITIONS.timers)
    _forget_recorded()
    try:
        yield
    finally:
        _forget_recorded()
        DEFINITIONS.declared[:] = declared
        DEFINITIONS.timers.clear()
        DEFINITIONS.timers.update(timers)


def forget_everything() -> None:
    """Drop records, steps, metrics, timers and counts, and record nothing."""
    _forget_recorded()
    DEFINITIONS.declared.clear()
    DEFINITIONS.timers.clear()


def _forget_recorded() -> None:
    AFTER_SHUTDOWN.forget()
    recorder.enabled = False
    buffer.stay_awake()  # no record begins the run that the environment may ask for
    recorder.forget()
    CAPTURED.forget()
    recorder.configure(RecordSettings())
    DEFINITIONS.forget()
    forget_names()
    forget_timers()
    reporter.connect(None)
