"""What `wandb.config` and `wandb.summary` have in common: a dictionary whose values are attributes too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["ValuesByName"]


class ValuesByName(ABC):
    """Values by key or by attribute; every name of one of its own begins with `_`, all others are the program's."""

    _values: dict[str, Any]

    def __init__(self) -> None:
        # Past our own `__setattr__()`, which would set a value of that name.
        object.__setattr__(self, "_values", {})

    @abstractmethod
    def update(self, d: Any) -> None:
        """Take over a mapping."""

    @abstractmethod
    def _missing(self, key: str) -> str:
        """Return what is wrong where there is no value `key`."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default`."""
        return self._values.get(key, default)

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._values.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return names and values."""
        return self._values.items()

    def _as_dict(self) -> dict[str, Any]:
        """Return all of it, as programs ask W&B's own class."""
        return self._values

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # a copy that is being made has no values yet
            raise AttributeError(key)
        if key not in self._values:
            raise AttributeError(self._missing(key))
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
