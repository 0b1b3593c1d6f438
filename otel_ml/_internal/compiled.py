"""Recording calls inside `torch.compile`: Dynamo is told what to trace in place of each.

The calls themselves stay as they are, so that outside of compiled code they cost nothing more; torch is not imported.
"""

from __future__ import annotations

from otel_ml._internal.guard import guard
from otel_ml._internal.when_imported import when_imported

__all__ = ["watch_for_compilation"]


def watch_for_compilation() -> None:
    """Tell Dynamo, once the program has loaded it."""
    when_imported("torch._dynamo", _tell_dynamo)


def _tell_dynamo() -> None:
    try:
        from otel_ml._internal.compiled_calls import substitute

        substitute()
    except Exception as error:  # noqa: BLE001 (an import of the program's own would fail)
        guard.say(
            "compiled-calls",
            f"log(), record() and timed() inside torch.compile are not part of its graph: {type(error).__name__}: "
            f"{error}. Each breaks the graph there, and records as it does outside.",
        )
