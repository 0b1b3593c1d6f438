"""Recording calls inside graphs that torch makes: Dynamo is told what to trace in place of each.

The calls themselves stay as they are, so that outside of compiled code they cost nothing more; torch is not imported.
"""

from __future__ import annotations

from typing import Any

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.trace_into_graph import trace_with
from otel_ml._internal.when_imported import when_imported

__all__ = ["watch_for_compilation"]


def watch_for_compilation() -> None:
    """Tell Dynamo, once the program has loaded it."""
    # `make_fx` and `torch.export` trace without Dynamo: of them it is `log()` itself that notices (`BeingTracedError`).
    trace_with(_trace_log)
    when_imported("torch._dynamo", _tell_dynamo)


def _trace_log(*arguments: Any, **options: Any) -> None:
    try:
        from otel_ml._internal.compiled import operator, traced_calls

        operator.define_operator()
        traced_calls.log(*arguments, **options)
    except Exception as error:  # noqa: BLE001 (the boundary to the user's program)
        _say_why_not(error)


def _tell_dynamo() -> None:
    try:
        from otel_ml._internal.compiled.traced_calls import substitute

        substitute()
    except Exception as error:  # noqa: BLE001 (an import of the program's own would fail)
        _say_why_not(error)


def _say_why_not(error: Exception) -> None:
    reporter.say(
        "compiled-calls",
        f"log(), record() and timed() are not part of compiled code: {type(error).__name__}: {error}. Inside "
        "torch.compile each breaks the graph, and records as it does outside.",
    )
