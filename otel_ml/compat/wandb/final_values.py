"""`wandb.summary`: the last value of each name, and what the program puts there itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_ml.compat.wandb.values_by_name import ValuesByName

__all__ = ["Summary"]


class Summary(ValuesByName):
    """Final values by key or by attribute.

    What is logged is here by its last value, and not written again: every backend has it already. What is set here is
    written at once, so that it is there when the process is killed.
    """

    _write: Callable[[Mapping[str, Any]], None]

    def __init__(self, write: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        object.__setattr__(self, "_write", write)

    def observe(self, row: Mapping[str, Any]) -> None:
        """Remember the last values of names."""
        self._values.update(row)

    def update(self, d: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Set several."""
        values = {**(d or {}), **more}
        self._values.update(values)
        if values:
            self._write(values)

    def _missing(self, key: str) -> str:
        return f"wandb.summary has no {key!r} yet"
