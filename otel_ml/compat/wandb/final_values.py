"""`wandb.summary`: the last value of each name, and what the program puts there itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.values import plain
from otel_ml.compat.wandb.values_by_name import ValuesByName

__all__ = ["Summary"]


class MissingValueError(AttributeError, KeyError):
    """There is no such value: W&B raises `KeyError` for an attribute, too."""

    def __str__(self) -> str:
        # `KeyError` shows the repr of its argument: the sentence in quotes.
        return str(self.args[0])


class Summary(ValuesByName):  # noqa: PLW1641 (no more than a dictionary has)
    """Final values by key or by attribute.

    What is logged is here by its last value, and not written again: every backend has it already. What is set here is
    written at once, so that it is there when the process is killed. `_step`, `_runtime` and `_timestamp` are those of
    the moment in which they are asked for.
    """

    _write: Callable[[Mapping[str, Any]], None]
    _of_run: Callable[[], Mapping[str, Any]]

    def __init__(
        self, write: Callable[[Mapping[str, Any]], None], of_run: Callable[[], Mapping[str, Any]] = dict
    ) -> None:
        super().__init__()
        # Past `__setattr__()`, which would set a value of the summary.
        object.__setattr__(self, "_write", write)
        object.__setattr__(self, "_of_run", of_run)

    def observe(self, row: Mapping[str, Any]) -> None:
        """Remember the last values of names."""
        self._values.update(row)

    def forget(self, names: Iterable[str]) -> None:
        """Have no value of names."""
        for name in names:
            self._values.pop(name, None)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or `default`."""
        try:
            return self._shown(key)
        except KeyError:
            return default

    def __getitem__(self, key: str) -> Any:
        return self._shown(key)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__"):  # a copy that is being made has no values yet
            raise AttributeError(key)
        try:
            return self._shown(key)
        except KeyError:
            raise MissingValueError(self._missing(key)) from None

    def __contains__(self, key: object) -> bool:
        # A dictionary that was logged is not a value itself: `{"train": {"loss": 1}}` is `train.loss`.
        return key in self._values or bool(self._inside(str(key)))

    def __delitem__(self, key: str) -> None:
        # W&B says nothing of a name that is not there.
        if key not in self._values:
            return
        del self._values[key]
        not_kept(f"del wandb.summary[{key!r}]", "this process forgets it; what is written already stays.")

    def __delattr__(self, key: str) -> None:
        del self[key]

    def __eq__(self, other: object) -> bool:
        return bool(self._values == (other._values if isinstance(other, Summary) else other))

    def _shown(self, key: str) -> Any:
        """Return a dictionary so that what is set in it is written, too."""
        if key not in self._values and (found := self._inside(key)):
            return self._group(key, found)
        # Names with `_` that the program has not logged are the run's own.
        value = self._values[key] if key in self._values or not key.startswith("_") else self._of_run()[key]
        if type(value) is not dict:
            return value
        inner = Summary(lambda values: self._write({key: values}))
        # The dictionary itself, not a copy: `summary["a"]["b"] = 1` has to change it.
        object.__setattr__(inner, "_values", value)
        return inner

    def _inside(self, key: str) -> dict[str, Any]:
        """Return the values that were logged in a dictionary `key`: they are kept as `key.name`."""
        return {name[len(key) + 1 :]: value for name, value in self._values.items() if name.startswith(f"{key}.")}

    def _group(self, key: str, found: Mapping[str, Any]) -> Summary:
        # What is set in it goes through `update()`, under the names that its values have here: `inner` has a copy of
        # them.
        inner = Summary(lambda values: self.update({f"{key}.{name}": value for name, value in values.items()}))
        object.__setattr__(inner, "_values", dict(found))
        return inner

    def update(self, d: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Set several."""
        if d is not None and not isinstance(d, Mapping):
            wrong = f"AttributeError: {type(d).__name__!r} object has no attribute 'items'"
            not_kept(f"wandb.summary.update({safe_repr(d, 40)})", f"{wrong}. Nothing of it is set.")
            d = None
        values = {key: plain(value) for key, value in {**(d or {}), **more}.items()}
        self._values.update(values)
        if values:
            self._write(values)

    def _missing(self, key: str) -> str:
        return f"wandb.summary has no {key!r} yet"
