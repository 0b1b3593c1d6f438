"""What another thread asks of a run's background thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from otel_ml._internal.lifecycle.shutdown import Status
from otel_ml._internal.one_time_event import OneTimeEvent

__all__ = ["Kind", "Request"]

Kind = Literal["collect", "flush", "end"]


@dataclass(slots=True)
class Request:
    """Something another thread wants: `done` is open when it has happened, or cannot.

    Attributes:
        kind: `collect` (into the spool), `flush` (acknowledged), `end` (shutdown message, and the thread ends).
    """

    kind: Kind
    deadline: float
    status: Status = "finished"
    done: OneTimeEvent = field(default_factory=OneTimeEvent)
    is_complete: bool = False
