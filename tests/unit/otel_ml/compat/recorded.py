"""What a test of a compatible interface asks of a capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.testing import Capture, Event

__all__ = ["events", "params", "steps_of", "written"]


def written(call: Callable[[Any], None]) -> Callable[[], None]:
    """Return a call that hands a `SummaryWriter` to `call`, and closes it."""

    def write() -> None:
        with SummaryWriter("runs/digits") as writer:
            call(writer)

    return write


def steps_of(captured: Capture, name: str, axis: str = "step") -> dict[int, float]:
    """Return a metric's values by step."""
    return {p.step: p.value for p in captured.points if p.name == name and p.axis == axis and p.step is not None}


def events(captured: Capture, kind: str) -> dict[str | None, Event]:
    """Return the events of a kind by name, of several the last."""
    return {event.name: event for event in captured.events if event.kind == f"ml.{kind}"}


def params(captured: Capture) -> dict[str, Any]:
    """Return all parameters; of one name the last."""
    merged: dict[str, Any] = {}
    for event in captured.events:
        if event.kind == "ml.params":
            merged.update(event.body)
    return merged
