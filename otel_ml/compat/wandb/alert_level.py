"""How urgent an alert is."""

from __future__ import annotations

from typing import Any

from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.compat.tracking.not_kept import is_given, not_kept

__all__ = ["level_of"]

_LEVELS = ("INFO", "WARN", "ERROR")


def level_of(given: Any) -> str:
    """Return what an alert is given as its level, by default `INFO`; one that W&B refuses is said."""
    # An `AlertLevel`, ours or W&B's, or its text.
    level = getattr(given, "value", given)
    # None, and an empty text, too: W&B takes INFO for all that is false.
    if not is_given(level):
        return "INFO"
    named = text_of(level)
    if named not in _LEVELS:
        wrong = f"ValueError: level must be one of {', '.join(_LEVELS)}"
        not_kept(f"run.alert(level={safe_repr(level, 40)})", f"{wrong}. The alert is recorded with it.")
    return named
