"""AReaL's `perf_tracer`: what it traces in any process is in the run, as timers, spans, metrics and events.

```python
from otel_ml.integrations.areal import instrument_areal

instrument_areal()
```

AReaL goes on writing its own files. A worker that AReaL starts has no program of yours, so its command has it, in
`scheduling_spec.cmd`:

```bash
python -m otel_ml.integrations.areal areal.infra.rpc.rpc_server
```
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import wraps
from importlib import import_module
from typing import Any

from otel_ml.integrations.areal.scopes import Scope, Steps, instant
from otel_ml.integrations.areal.sessions import Sessions
from otel_ml.integrations.missing_package import PackageError

__all__ = ["instrument_areal"]

_MARK = "__is_heard_by_otel_ml__"


def instrument_areal() -> None:
    """Record what AReaL's `perf_tracer` traces in this process; before or after AReaL has configured it.

    * `trace_scope("train.rollout")`, `atrace_scope()` and `@trace_perf` are the timer `time/train.rollout` in seconds
      with a span, of the slowest rank, as `otel_ml.timed()`; category and arguments are attributes of the span. Of the
      categories `comm` and `sync` the time goes by waiting for other ranks, and nobody is called slow for it.
    * `args={"global_step": 3}` sets the step of the process. A worker that is told none counts by `save(step=…)`,
      which AReaL calls in each of them at the end of a step; that is `time/perf_tracer.save`.
    * `instant()` is `otel_ml.event()`.
    * A session is the timer `time/session`, its phases are `time/session/generate`, `…/reward` and `…/toolcall`: the
      longest one of a step, for sessions run beside each other. At its end `session/total_s`, `session/<phase>_s`, its
      counters as `session/<name>` (mean, and `p99`), and `session/<status>`, a sum.

    What AReaL is not asked to trace (`perf_tracer.enabled`, `perf_tracer.session_tracer.enabled`) is not recorded.

    Raises:
        PackageError: AReaL is not installed.
    """
    try:
        traced = import_module("areal.utils.perf_tracer")
    except ImportError as error:
        raise PackageError("instrument_areal()", "areal>=1.0.4") from error
    if not hasattr(traced.PerfTracer, _MARK):
        setattr(traced.PerfTracer, _MARK, True)
        _hear_scopes(traced.PerfTracer, Steps())
        _hear_sessions(traced.SessionTracer, Sessions())


def _hear_scopes(tracer: Any, steps: Steps) -> None:
    def heard(scope_of: Any) -> Any:
        @wraps(scope_of)
        def scope(self: Any, name: str, *, category: Any = None, args: Any = None, **of_the_profiler: Any) -> Any:
            theirs = scope_of(self, name, category=category, args=args, **of_the_profiler)
            # Asked at each scope: AReaL may configure its tracer later.
            return Scope(theirs, name, category, args, steps) if self.enabled else theirs

        return scope

    tracer.trace_scope, tracer.atrace_scope = heard(tracer.trace_scope), heard(tracer.atrace_scope)
    instant_of, save = tracer.instant, tracer.save

    @wraps(instant_of)
    def heard_instant(self: Any, name: str, *, category: Any = None, args: Any = None) -> None:
        instant_of(self, name, category=category, args=args)
        if self.enabled:
            instant(name, category, args)

    @wraps(save)
    def heard_save(self: Any, *, step: int | None = None, force: bool = False) -> None:
        with steps.saving(step) if self.enabled else nullcontext():
            save(self, step=step, force=force)

    tracer.instant, tracer.save = heard_instant, heard_save


def _hear_sessions(tracer: Any, sessions: Sessions) -> None:
    register, record, count, reset = (
        tracer.register_session,
        tracer.record_event,
        tracer.increment_counter,
        tracer.reset,
    )

    @wraps(register)
    def heard_register(self: Any, task_id: int) -> Any:
        # Theirs first: if it raises there is no session of which anything could be recorded.
        session_id = register(self, task_id)
        sessions.begin(self, session_id, task_id)
        return session_id

    @wraps(record)
    def heard_record(self: Any, session_id: int, event: Any, **payload: Any) -> None:
        record(self, session_id, event, **payload)
        sessions.hear(self, session_id, event, payload)

    @wraps(count)
    def heard_count(self: Any, session_id: int, name: str, value: int = 1) -> None:
        count(self, session_id, name, value)
        sessions.count(self, session_id, name, value)

    @wraps(reset)
    def heard_reset(self: Any) -> None:
        reset(self)
        sessions.forget(self)

    tracer.register_session, tracer.record_event = heard_register, heard_record
    tracer.increment_counter, tracer.reset = heard_count, heard_reset
