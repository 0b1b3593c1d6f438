"""The classes of what the calls of `otel_ml` return, to annotate with. The calls make them; nobody else does.

`Run`, `Operation` and the errors are where the calls are: `otel_ml.Run`, `otel_ml.diagnostics.operation.Operation`.
"""

from __future__ import annotations

from otel_ml._internal.lifecycle.run_methods import RunTimer, RunTiming
from otel_ml._internal.record.meter import Meter, Metric
from otel_ml._internal.record.opentelemetry_instruments import Counter, Gauge, Histogram, UpDownCounter
from otel_ml._internal.series.reduction_arguments import Reduce
from otel_ml._internal.steps.step import StepBlock
from otel_ml._internal.timers.context import Context
from otel_ml._internal.timers.manual_timer import Timer
from otel_ml._internal.timers.step_loop import StepLoop
from otel_ml._internal.timers.timing import Timing

__all__ = [
    "Context",
    "Counter",
    "Gauge",
    "Histogram",
    "Meter",
    "Metric",
    "Reduce",
    "RunTimer",
    "RunTiming",
    "StepBlock",
    "StepLoop",
    "Timer",
    "Timing",
    "UpDownCounter",
]
