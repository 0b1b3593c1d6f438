"""One process, many tests: the record path as if the process had just begun."""

from __future__ import annotations

from otel_ml._internal.definition import DEFINITIONS
from otel_ml._internal.guard import guard
from otel_ml._internal.log import forget_names
from otel_ml._internal.recorder import RecordSettings, recorder
from otel_ml._internal.timing import forget_timers

__all__ = ["forget_everything"]


def forget_everything() -> None:
    """Drop records, steps, metrics, timers and counts, and record nothing. For `otel_ml.testing`."""
    recorder.enabled = False
    recorder.forget()
    recorder.configure(RecordSettings())
    DEFINITIONS.forget()
    forget_names()
    forget_timers()
    guard.connect(None)
