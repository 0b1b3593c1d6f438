"""What reasons of losses count: values that were recorded, values that never were, events and spans.

Their beginnings say so: `recorded = delivered + superseded + on its way + lost` holds for the first kind (ADR 0031).
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["lost_values", "not_recorded", "other_losses"]

_NOT_RECORDED = ("bad_", "device_", "internal_", "missing_")
"""Of a call that was refused, or of a device that did not give its value."""

_OTHERS = ("events_", "spans_")


def lost_values(lost: Mapping[str, int]) -> dict[str, int]:
    """Return what counts values that were recorded, by reason.

    Examples:
        >>> lost_values({"spool_full": 3, "bad_value": 2, "events_never_arrived": 1})
        {'spool_full': 3}
    """
    return {reason: count for reason, count in lost.items() if not reason.startswith((*_NOT_RECORDED, *_OTHERS))}


def not_recorded(lost: Mapping[str, int]) -> dict[str, int]:
    """Return what counts values that were never recorded, by reason."""
    return {reason: count for reason, count in lost.items() if reason.startswith(_NOT_RECORDED)}


def other_losses(lost: Mapping[str, int]) -> dict[str, int]:
    """Return what counts events and spans, by reason."""
    return {reason: count for reason, count in lost.items() if reason.startswith(_OTHERS)}
