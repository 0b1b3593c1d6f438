"""`wandb.AlertLevel`: how urgent an alert is."""

from __future__ import annotations

from enum import Enum

__all__ = ["AlertLevel"]


class AlertLevel(Enum):
    """Of an alert; recorded as its text."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"
