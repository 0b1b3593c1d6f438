"""A `log()` inside a graph that torch traces without Dynamo (`make_fx`, `torch.export`): it becomes part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_ml._internal.error_reporting import reporter

__all__ = ["trace_log", "trace_with"]


def _nobody(*_: Any, **__: Any) -> None:
    reporter.failed("log()", RuntimeError("what records inside of compiled code is not loaded"))


# Until `recording.py`, which loads all that records, has called `watch_for_compilation()`.
_trace: Callable[..., None] = _nobody


def trace_with(trace: Callable[..., None]) -> None:
    """Have `trace` take calls of `log()` into the graph; it needs torch, and is loaded after what records."""
    global _trace
    _trace = trace


def trace_log(*arguments: Any, **options: Any) -> None:
    """Have a `log()` become part of the graph that is being traced."""
    _trace(*arguments, **options)
