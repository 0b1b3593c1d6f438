"""`wandb.config`: a dictionary with attributes; what is set becomes parameters of the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from otel_ml._internal.events.config_values import readable
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.said import not_kept
from otel_ml.compat.wandb.values_by_name import ValuesByName

__all__ = ["Config", "as_mapping", "with_files"]


class Config(ValuesByName):
    """Parameters by key or by attribute. Before `init()` they are kept, and recorded with it."""

    _record: Callable[[Mapping[str, Any]], None] | None

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_record", None)

    def _connect(self, record: Callable[[Mapping[str, Any]], None]) -> None:
        """Record what is there and what is set from now on."""
        object.__setattr__(self, "_record", record)
        if self._values:
            record(self._values)

    def update(self, d: Any, allow_val_change: bool | None = None) -> None:
        """Take over a mapping, an `argparse` namespace, a dataclass or a YAML file; later values replace earlier."""
        del allow_val_change  # a change is always allowed: the run shows the newest value
        values = as_mapping(d)
        self._values.update(values)
        if self._record is not None and values:
            self._record(values)

    def setdefaults(self, d: Any) -> None:
        """Take over what is not there yet."""
        self.update({key: value for key, value in as_mapping(d).items() if key not in self._values})

    def update_locked(self, d: Any, user: str | None = None, _allow_val_change: bool | None = None) -> None:
        """Take over values of a sweep."""
        del user, _allow_val_change
        self.update(d)

    def as_dict(self) -> dict[str, Any]:
        """Return a copy as a plain dictionary."""
        return dict(self._values)

    def values(self) -> Iterable[Any]:
        """Return the values."""
        return self._values.values()

    def _missing(self, key: str) -> str:
        known = ", ".join(map(str, self._values)) or "nothing"
        return f"wandb.config has no {key!r}; it has {known}"


def as_mapping(given: Any) -> dict[str, Any]:
    """Return parameters in any of the forms that W&B takes; said, and nothing, where they are in none of them."""
    if given is None:
        return {}
    if isinstance(given, (str, Path)):
        return _from_file(Path(given))
    try:
        if isinstance(given, Mapping):
            return {str(key): value for key, value in given.items()}
        if hasattr(given, "as_dict"):
            return dict(given.as_dict())
        return {str(key): value for key, value in vars(given).items() if not key.startswith("_")}
    except Exception:  # noqa: BLE001 (a value that is missing, or cannot be resolved here)
        return _what_can_be_read(given)


def with_files(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with those of `config-defaults.yaml` and `WANDB_CONFIG_PATHS`, and with those of a sweep.

    What the program gives wins over files, and a sweep over both, as in W&B.
    """
    defaults = Path("config-defaults.yaml")
    paths = [defaults] if defaults.is_file() else []
    paths += [Path(path) for path in os.environ.get("WANDB_CONFIG_PATHS", "").split(",") if path]
    merged: dict[str, Any] = {}
    for path in paths:
        merged.update(_from_file(path))
    merged.update(given)
    if sweep := os.environ.get("WANDB_SWEEP_PARAM_PATH"):
        merged.update(_from_file(Path(sweep)))
    merged.pop("wandb_version", None)  # what W&B writes in its own files
    return merged


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
    except (OSError, yaml.YAMLError) as error:
        not_kept(f"config={str(path)!r}", f"the file cannot be read: {error}")
        return {}
    found = loaded if isinstance(loaded, dict) else {}
    # W&B's own files hold {"value": …, "desc": …} for each name.
    return {
        str(key): item["value"] if isinstance(item, dict) and "value" in item else item for key, item in found.items()
    }
