"""Time in which roles wait for, or give things to, each other: timers, so each also leaves a span."""

from __future__ import annotations

from typing import Any

import otel_ml
from otel_ml.diagnostics.rl.table import measure

__all__ = [
    "batch_creation",
    "idle",
    "model_loading",
    "synchronization",
    "tokenization",
    "weight_pull",
    "weight_push",
]


def idle() -> Any:
    """Time waiting for another role; as a block, or on a function."""
    return _timed("rl/loop/idle")


def batch_creation() -> Any:
    """Time the making of a batch."""
    return _timed("rl/loop/batch_creation")


def model_loading() -> Any:
    """Time the loading of a model."""
    return _timed("rl/loop/model_loading")


def tokenization() -> Any:
    """Time tokenization."""
    return _timed("rl/sample/tokenisation")


def weight_push() -> Any:
    """Time giving weights to generators."""
    return _timed("rl/sync/push")


def weight_pull() -> Any:
    """Time taking weights over from the trainer."""
    return _timed("rl/sync/pull")


def synchronization() -> Any:
    """Time waiting until all are in the same place."""
    return _timed("rl/sync/overhead")


def _timed(name: str) -> Any:
    row = measure(f"time/{name}")
    return otel_ml.timed(name, reduce=row.reduce, within=row.within)
