"""Every rank of a training job records metrics and timers with one line; one run comes out.

```python
import otel_ml

with otel_ml.init("digits"):
    for batch in otel_ml.steps(loader):
        with otel_ml.timed("forward"):
            loss = model(batch)
        otel_ml.log({"loss": loss})
```
"""

from __future__ import annotations

import sys

from otel_ml._internal.forks import FORKS as _FORKS
from otel_ml.exceptions import ConfigError, MissingDependencyError, OtelMLError

_FORKS.watch()

TYPE_CHECKING = False  # type checkers know the name; importing `typing` for it takes 12 ms

if TYPE_CHECKING:
    from otel_ml._internal.events.artifact_calls import log_artifact, log_checkpoint
    from otel_ml._internal.events.event_calls import (
        event,
        log_audio,
        log_figure,
        log_histogram,
        log_image,
        log_params,
        log_table,
        log_text,
    )
    from otel_ml._internal.lifecycle.api import child_env, flush, init, shutdown
    from otel_ml._internal.lifecycle.read_run import read
    from otel_ml._internal.lifecycle.run import Run
    from otel_ml._internal.record.log import log, record
    from otel_ml._internal.record.meter import get_meter
    from otel_ml._internal.series.definition import define_metric
    from otel_ml._internal.steps.current import current_step
    from otel_ml._internal.steps.step import set_step, step
    from otel_ml._internal.timers.consumed import consumed
    from otel_ml._internal.timers.context import context
    from otel_ml._internal.timers.manual_timer import timer
    from otel_ml._internal.timers.step_loop import steps
    from otel_ml._internal.timers.timing import timed
    from otel_ml.diagnostics.operation import operation
    from otel_ml.integrations.ray import instrument_ray

__all__ = [
    "ConfigError",
    "MissingDependencyError",
    "OtelMLError",
    "Run",
    "child_env",
    "consumed",
    "context",
    "current_step",
    "define_metric",
    "event",
    "flush",
    "get_meter",
    "init",
    "instrument_ray",
    "log",
    "log_artifact",
    "log_audio",
    "log_checkpoint",
    "log_figure",
    "log_histogram",
    "log_image",
    "log_params",
    "log_table",
    "log_text",
    "operation",
    "read",
    "record",
    "set_step",
    "shutdown",
    "step",
    "steps",
    "timed",
    "timer",
]

# Modules are loaded when they are first used: a library that only may record costs its users nothing at import,
# and the service, which shares `otel_ml.wire`, does not load what records.
_LAZY = {
    "diagnostics.operation": ("operation",),
    "integrations.ray": ("instrument_ray",),
    "_internal.recording": ("current_step", "define_metric", "get_meter", "log", "record", "set_step", "step", "steps"),
    "_internal.timers.consumed": ("consumed",),
    "_internal.timers.context": ("context",),
    "_internal.timers.manual_timer": ("timer",),
    "_internal.timers.timing": ("timed",),
    "_internal.lifecycle.api": ("child_env", "flush", "init", "shutdown"),
    "_internal.events.artifact_calls": ("log_artifact", "log_checkpoint"),
    "_internal.events.event_calls": (
        "event",
        "log_audio",
        "log_figure",
        "log_histogram",
        "log_image",
        "log_params",
        "log_table",
        "log_text",
    ),
    "_internal.lifecycle.read_run": ("read",),
    "_internal.lifecycle.run": ("Run",),
}


_OF_A_RUN = frozenset(
    {"dir", "experiment", "finish", "id", "is_active", "name", "rank", "role", "summary", "urls", "use"}
)
"""What `Run` has and the module does not."""


if not TYPE_CHECKING:  # who would take any name for one of ours

    def __getattr__(name: str) -> object:
        for module, names in _LAZY.items():
            if name in names:
                import importlib

                importlib.import_module("otel_ml._internal.recording")  # arms the run that the environment asks for
                found = getattr(importlib.import_module(f"otel_ml.{module}"), name)
                globals()[name] = found
                return found
        hint = f". It belongs to a run: run = otel_ml.init(…), run.{name}" if name in _OF_A_RUN else ""
        raise AttributeError(
            f"module 'otel_ml' has no attribute {name!r}{hint}", name=name, obj=sys.modules[__name__]
        )  # with the module Python says which name is near


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
