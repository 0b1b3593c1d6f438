"""Pictures, tables and the like that a program sets in `run.summary`: recorded as those that it logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_ml.compat.tracking.step_axes import StepCounts
from otel_ml.compat.wandb.media import Media, is_picture, keep

__all__ = ["keep_media"]


def keep_media(values: Mapping[str, Any], counts: StepCounts) -> dict[str, Any]:
    """Record what is to be looked at, under its name at the newest step; return the rest.

    A summary of parameters would have no more of it than the name of its class.
    """
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if _is_media(value):
            # `latest` is -1 before the first row.
            keep(name, value, max(counts.latest, 0), counts.axis_beside(name))
        else:
            rest[name] = value
    return rest


def _is_media(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, Media) for item in value)
    return isinstance(value, Media) or is_picture(value) or hasattr(value, "itertuples")
