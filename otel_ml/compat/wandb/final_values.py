"""`wandb.summary`: the last value of each name, and what the program puts there itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Summary"]


class Summary:
    """Final values by key or by attribute.

    What is logged is here by its last value, and not written again: every backend has it already. What is set here is
    written at once, so that it is there when the process is killed.
    """

    _values: dict[str, Any]
    _write: Callable[[Mapping[str, Any]], None]

    def __init__(self, write: Callable[[Mapping[str, Any]], None]) -> None:
        object.__setattr__(self, "_values", {})
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

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default`."""
        return self._values.get(key, default)

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._values.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return names and values."""
        return self._values.items()

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # a copy that is being made has no values yet
            raise AttributeError(key)
        if key not in self._values:
            raise AttributeError(f"wandb.summary has no {key!r} yet")
        return self._values[key]

    def __setattr__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)
