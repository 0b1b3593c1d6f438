"""`wandb.config`: a dictionary with attributes; what is set becomes parameters of the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from otel_ml._internal.events.config_values import readable
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.shown_values import as_wandb_shows
from otel_ml.compat.wandb.values_by_name import ValuesByName

__all__ = ["Config", "as_mapping", "of_sweep", "with_files"]


class Config(ValuesByName):
    """Parameters by key or by attribute. Before `init()` they are kept, and recorded with it."""

    _record: Callable[[Mapping[str, Any]], None] | None
    _locked: set[str]

    def __init__(self) -> None:
        super().__init__()
        # Past our own `__setattr__()`, for which every attribute is a parameter.
        object.__setattr__(self, "_record", None)
        object.__setattr__(self, "_locked", set())

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Config:
        """Return parameters that are of no run."""
        config = cls()
        config.update(given)
        return config

    def _connect(self, record: Callable[[Mapping[str, Any]], None]) -> None:
        """Record what is there and what is set from now on."""
        self._record_with(record)
        if self._values:
            record(self._values)

    def _record_with(self, record: Callable[[Mapping[str, Any]], None]) -> None:
        """Record what is set from now on."""
        object.__setattr__(self, "_record", record)

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], Config], tuple[dict[str, Any]]]:
        """Travel and be copied as the values alone, also those that a sweep has locked."""
        return _copied, (self._values,)

    def update(self, d: Any, allow_val_change: bool | None = None) -> None:
        """Take over a mapping, an `argparse` namespace, a dataclass or a YAML file; later values replace earlier.

        Values become plain, as in W&B: tuples and sets lists, a path its text, a number of numpy a number.
        """
        del allow_val_change  # a change is always allowed: the run shows the newest value
        values = _plain(d)
        # The program may give a sweep's value again; only another one is worth a word.
        for key in self._locked & values.keys():
            if values.pop(key) != self._values[key]:
                not_kept(f"wandb.config[{key!r}]", "it is locked by the sweep, and keeps the sweep's value.")
        self._take(values)

    def _take(self, values: Mapping[str, Any]) -> None:
        self._values.update(values)
        if self._record is not None and values:
            self._record(values)

    def setdefaults(self, d: Any) -> None:
        """Take over what is not there yet."""
        self.update({key: value for key, value in as_mapping(d).items() if key not in self._values})

    def update_locked(self, d: Any, user: str | None = None, _allow_val_change: bool | None = None) -> None:
        """Take over values of a sweep: what the program sets of them later changes nothing."""
        del user, _allow_val_change
        values = _plain(d)
        self._locked.update(values)
        self._take(values)

    def merge_locked(self, d: Any, user: str | None = None, _allow_val_change: bool | None = None) -> None:
        """Take over values of a sweep; inside of a dictionary only those that it has."""
        self.update_locked(_merged(self._values, as_mapping(d)), user, _allow_val_change)

    def persist(self) -> None:
        """Do nothing: what is set is recorded at once."""

    def keys(self) -> list[str]:
        """Return the names; as in W&B, one that begins with `_` is recorded, and only its own key finds it."""
        return [key for key in self._values if not key.startswith("_")]

    def items(self) -> list[tuple[str, Any]]:
        """Return names and values, of those that `keys()` has."""
        return [(key, self._values[key]) for key in self.keys()]

    def as_dict(self) -> dict[str, Any]:
        """Return a copy as a plain dictionary, of those that `keys()` has."""
        return dict(self.items())

    def values(self) -> list[Any]:
        """Return the values, of those that `keys()` has."""
        return [value for _, value in self.items()]

    def _missing(self, key: str) -> str:
        known = ", ".join(map(str, self._values)) or "nothing"
        return f"wandb.config: the object has no attribute {key!r}; it has {known}"


def _copied(values: Mapping[str, Any]) -> Config:
    config = Config.of(values)
    config._record_with(_not_recorded)  # noqa: SLF001 (its own module)
    return config


def _not_recorded(values: Mapping[str, Any]) -> None:
    names = ", ".join(map(repr, values))
    not_kept(f"Setting {names} in a copy of wandb.config", "the copy has it, the run does not. Set it in run.config.")


def _plain(given: Any) -> dict[str, Any]:
    """Return parameters as W&B keeps them: names of options without their `-`, values as plain as they are recorded."""
    # `--lr` of an argument parser is `lr`.
    return {key.strip("-"): _readable(value) for key, value in as_mapping(given).items()}


def _readable(value: Any) -> Any:
    found, problems = readable(value, as_wandb_shows)
    return value if problems else found  # who records it says what cannot be read


def _merged(before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for key, value in values.items():
        inside = before.get(key)
        # Deeper ones as well: `{"opt": {"lr": 1}}` changes `lr` alone, and the rest of `opt` stays.
        if isinstance(inside, Mapping) and isinstance(value, Mapping):
            merged[key] = {**inside, **_merged(inside, value)}
    return merged


def as_mapping(given: Any) -> dict[str, Any]:
    """Return parameters in any of the forms that W&B takes; said, and nothing, where they are in none of them."""
    if given is None:
        return {}
    if isinstance(given, (str, Path)):
        return _from_file(Path(given))
    try:
        if isinstance(given, Mapping):
            return {str(key): value for key, value in given.items()}
        # `Config`, ours or W&B's.
        if hasattr(given, "as_dict"):
            return dict(given.as_dict())
        if callable(getattr(given, "flag_values_dict", None)):  # absl's FLAGS, whose attributes are its own
            return dict(given.flag_values_dict())
        # A namespace of argparse, a dataclass, or any other object; what has no attributes raises TypeError.
        return {str(key): value for key, value in vars(given).items() if not key.startswith("__")}
    except Exception:  # noqa: BLE001 (a value that is missing, or cannot be resolved here)
        return _what_can_be_read(given)


def with_files(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with those of `config-defaults.yaml` and `WANDB_CONFIG_PATHS`; what the program gives wins."""
    defaults = Path("config-defaults.yaml")
    paths = [defaults] if defaults.is_file() else []
    paths += [Path(path) for path in os.environ.get("WANDB_CONFIG_PATHS", "").split(",") if path]
    if defaults in paths and not defaults.stat().st_size:
        not_kept(f"config={str(defaults)!r}", "the file is empty, and the run has no defaults.")
    # In this order, the last one wins: the defaults, the files as they are named, what the program gives.
    merged: dict[str, Any] = {}
    for path in paths:
        merged.update(_from_file(path))
    merged.update(given)
    return _without_version(merged)


def of_sweep() -> dict[str, Any]:
    """Return the parameters of the sweep that this process is a trial of."""
    path = os.environ.get("WANDB_SWEEP_PARAM_PATH")
    return _without_version(_from_file(Path(path))) if path else {}


def _without_version(values: dict[str, Any]) -> dict[str, Any]:
    values.pop("wandb_version", None)  # what W&B writes in its own files
    return values


def _what_can_be_read(given: Any) -> dict[str, Any]:
    found, problems = readable(given)
    if not isinstance(found, dict):
        not_kept(f"config={safe_repr(given)}", "it is not a mapping, namespace or file. Pass a dictionary.")
        return {}
    not_kept(f"config={type(given).__name__}", f"of {', '.join(problems)} the text is kept, if there is one.")
    return found


def _from_file(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    # A file that is not UTF-8 is a ValueError; so is a date of YAML that there is not.
    except (OSError, ValueError, yaml.YAMLError) as error:
        not_kept(f"config={str(path)!r}", f"the file cannot be read: {error}")
        return {}
    found = loaded if isinstance(loaded, dict) else {}
    # W&B's own files hold {"value": …, "desc": …} for each name.
    return {
        str(key): item["value"] if isinstance(item, dict) and "value" in item else item for key, item in found.items()
    }
