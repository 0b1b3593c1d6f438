"""What the frameworks of Hugging Face log: numbers, and now and then a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import otel_ml

__all__ = ["log_values"]


def log_values(values: Mapping[str, Any], step: int | None) -> None:
    """Record texts as texts, and everything else as a value; of a name's values at one step the last counts."""
    texts = {name: value for name, value in values.items() if isinstance(value, str)}
    otel_ml.log({name: value for name, value in values.items() if name not in texts}, step=step, within="last")
    for name, text in texts.items():
        otel_ml.log_text(name, text, step=step)
