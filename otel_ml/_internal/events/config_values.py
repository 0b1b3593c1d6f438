"""Configurations of any kind as what OTLP can carry: numbers, texts, lists and dictionaries; nothing of it raises.

A value is somebody's code: a property, a `__getitem__`, a `__str__`, an interpolation that is resolved when it is read.
What raises costs one value, and is told with its place.
"""

from __future__ import annotations

import dataclasses
import math
import reprlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import SimpleNamespace
from typing import Any

from otel_ml._internal.device_tensor import is_on_device
from otel_ml._internal.safe_repr import text_of

__all__ = ["TOO_MUCH", "config_value", "readable"]

DEEPEST = 16
MOST_VALUES = 20_000
MOST_TEXT = 2**20
"""Levels, values and characters of one call: a request holds not much more, and a structure may hold itself."""

_TOO_MANY, _TOO_LONG = f"more than {MOST_VALUES:,} values", f"more than {MOST_TEXT:,} characters in all"
TOO_MUCH = frozenset({_TOO_MANY, _TOO_LONG})
"""Why something could not be read that is only too large; anything else is what the program's own code raised."""

_MOST_NUMBERS = 1000
"""Elements of an array; of larger ones the shape."""

_DEEPER = reprlib.Repr()
_DEEPER.maxlevel = 6
_DEEPER.maxdict = _DEEPER.maxlist = _DEEPER.maxtuple = 3
_DEEPER.maxstring = _DEEPER.maxother = 200
"""Makes the text of what is deeper: short, also where parts are shared so often that all of it has no end."""

_METHODS = ("to_dict", "model_dump", "to_container")
"""Of classes that know how to become plain: those of transformers, ml_collections."""


def config_value(value: Any) -> object:
    """Return `value` as OTLP can carry it; what has no such form by its text."""
    return readable(value)[0]


def readable(value: Any, shown: Callable[[Any], Any] | None = None) -> tuple[object, Mapping[str, str]]:
    """Return `value` as OTLP can carry it, and what of it could not be read: where → why.

    Args:
        value: of any kind.
        shown: returns what a part that is neither a number nor a text is shown as, or the part itself.
    """
    reading = _Reading(shown)
    return reading.read(value), reading.problems


class _Reading:
    """One walk through a structure.

    Attributes:
        problems: path, such as `model.ckpt` → why it could not be read.
    """

    def __init__(self, shown: Callable[[Any], Any] | None) -> None:
        self.problems: dict[str, str] = {}
        self._shown = shown
        self._values = MOST_VALUES
        self._text = MOST_TEXT
        self._path: list[str] = []
        self._within: list[int] = []

    def read(self, value: Any) -> object:
        """Return `value` in plain form."""
        try:
            return self._read(value)
        except Exception as error:  # noqa: BLE001 (the program's own classes)
            self._complain(error)
            return self._cut(text_of(value))

    def _read(self, value: Any) -> object:
        # Members of a StrEnum or IntEnum are recorded by their value, as any text or number.
        if isinstance(value, Enum) and not isinstance(value, (str, int, float)):
            return text_of(value.name)
        # Before int, of which bool is a subclass.
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            # Not `str()`: a class of the program's may have a text of its own.
            return self._cut(str.__str__(value))
        if isinstance(value, int):
            return int(value)
        return float(value) if isinstance(value, float) else self._structure(value)

    def _structure(self, value: Any) -> object:
        if self._shown is not None and (shown := self._shown(value)) is not value:
            return self.read(shown)
        if isinstance(value, type):
            return text_of(value)
        # Only what encloses it is compared: a part that stands in two places is recorded twice.
        if id(value) in self._within:
            return f"<{type(value).__name__} that it is in>"
        if len(self._within) >= DEEPEST:
            # Such a text counts as 100 values: it takes as long, and shared parts come here again and again.
            self._values -= MOST_VALUES // 200
            return self._cut(_DEEPER.repr(value))
        self._within.append(id(value))
        try:
            return self._parts(value)
        finally:
            self._within.pop()

    def _parts(self, value: Any) -> object:
        # First: a named tuple is a sequence, too, and a class that says its fields may be a mapping.
        names = _fields(value)
        if names is not None:
            return self._entries(value, names, lambda name: getattr(value, name))
        if isinstance(value, Mapping):
            return self._entries(value, value, value.__getitem__)
        if isinstance(value, (set, frozenset)):  # in the same order in every process
            return self._items(sorted(value, key=text_of))
        if isinstance(value, (Sequence, deque)) and not isinstance(value, (bytes, bytearray, memoryview)):
            return self._items(value)
        if hasattr(value, "tolist") and hasattr(value, "shape"):
            return self._array(value)
        for method in _METHODS:
            if callable(getattr(value, method, None)):
                return self.read(getattr(value, method)())
        return self._cut(text_of(value))

    def _entries(self, owner: Any, keys: Iterable[Any], get: Callable[[Any], Any]) -> dict[str, object]:
        found: dict[str, object] = {}
        # A copy, as what is read here is the program's code, which may add keys.
        for key in list(keys):
            name = text_of(key)
            if not self._goes_on(name):
                break
            try:
                found[name] = self.read(get(key))
            except Exception as error:  # noqa: BLE001 (a missing value, an interpolation, a property)
                self._complain(error)
                if (raw := _unresolved(owner, key)) is not None:
                    found[name] = self._cut(raw)
            finally:
                self._path.pop()
        return found

    def _items(self, values: Any) -> list[object]:
        found = []
        # By place: an iteration would end at the first element that cannot be read, as OmegaConf's `???`.
        for place in range(len(values)):
            if not self._goes_on(str(place)):
                break
            try:
                found.append(self.read(values[place]))
            except Exception as error:  # noqa: BLE001 (as above; the others keep their places)
                self._complain(error)
                found.append(_unresolved(values, place))
            finally:
                self._path.pop()
        return found

    def _array(self, value: Any) -> object:
        # The values of an array on a device would have the call wait for the device (docs/protocol.md §2.1).
        if is_on_device(value) or math.prod(value.shape) > _MOST_NUMBERS:
            return f"<{type(value).__name__} of shape {tuple(value.shape)}>"
        return self.read(value.tolist())

    def _goes_on(self, name: str) -> bool:
        """Enter a part of the structure, if not too many were; who enters leaves."""
        self._values -= 1
        if self._values < 0:
            self.problems.setdefault("…", _TOO_MANY)
            return False
        self._path.append(name)
        return True

    def _cut(self, text: str) -> str:
        if len(text) > self._text:
            self.problems.setdefault(".".join(self._path), _TOO_LONG)
        kept = text[: self._text]
        self._text -= len(kept)
        return kept

    def _complain(self, error: Exception) -> None:
        why = text_of(error).strip().partition("\n")[0]
        self.problems.setdefault(".".join(self._path), f"{type(error).__name__}: {why}"[:200])


def _fields(value: Any) -> Sequence[str] | None:
    """Return the names of what a value consists of; None where its class does not say."""
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    if isinstance(value, tuple):
        return getattr(kind, "_fields", None)
    if (attributes := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [attribute.name for attribute in attributes]
    if isinstance(fields := getattr(kind, "model_fields", None), Mapping):  # pydantic
        return [*fields, *(getattr(value, "model_extra", None) or ())]
    if isinstance(fields := getattr(kind, "__struct_fields__", None), tuple):  # msgspec
        return fields
    argparse = sys.modules.get("argparse")
    is_namespace = isinstance(value, SimpleNamespace) or (argparse and isinstance(value, argparse.Namespace))
    return [*vars(value)] if is_namespace else None


def _unresolved(owner: Any, key: Any) -> str | None:
    """Return what OmegaConf has for a value that is missing, `???`, or that cannot be resolved here, `${…}`."""
    omegaconf = sys.modules.get("omegaconf")
    if omegaconf is None or not omegaconf.OmegaConf.is_config(owner):
        return None
    try:
        return text_of(omegaconf.OmegaConf.to_container(owner, resolve=False)[key])
    except Exception:  # noqa: BLE001 (it is told already that it cannot be read)
        return None
