"""What records, loaded together at the first use of any of it; armed where the environment asks for a run."""

from __future__ import annotations

from otel_ml._internal.compiled import watch_for_compilation
from otel_ml._internal.definition import define_metric
from otel_ml._internal.log import log, record
from otel_ml._internal.loop import steps
from otel_ml._internal.meter import get_meter
from otel_ml._internal.step import set_step, step
from otel_ml._internal.timing import timed, timer
from otel_ml._internal.wake import arm

__all__ = ["define_metric", "get_meter", "log", "record", "set_step", "step", "steps", "timed", "timer"]

arm()
watch_for_compilation()
