"""Names of metrics as MLflow takes them: readable, one for each, and the originals in the run's tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import count

from otel_ml.wire.safe_names import readable

__all__ = ["NAMES", "PARAM_NAMES", "Names", "fitting", "numbered"]

NAMES = "otel_ml.names"
"""Tags `otel_ml.names.0`, `.1`, …: `{"key in MLflow": "name as it was recorded"}`, of those that differ."""

PARAM_NAMES = "otel_ml.param_names"
"""The same of parameters."""

MAX_LENGTH = 250
"""`mlflow.utils.validation.MAX_ENTITY_KEY_LENGTH`."""

_ABOVE = re.compile(r"\A\.\.")
_FORBIDDEN = re.compile(r"[^/\w.\- :]")
# MLflow's limit of a tag's value is 8,000 characters.
_MAX_TAG = 7500


def fitting(name: str) -> str:
    """Return a name that MLflow takes: `name` where it does.

    Examples:
        >>> fitting("val loss: 损失"), fitting("val/AR@100"), fitting("mfu(%)"), fitting("/abs//x"), fitting("../up")
        ('val loss: 损失', 'val/AR_at_100', 'mfu_percent', 'abs/x', 'up')
    """
    parts = [part for part in readable(name, _FORBIDDEN).split("/") if part not in {"", ".", ".."}]
    # Cut anywhere, it may end in `/`, which MLflow does not take.
    short = "/".join(parts)[:MAX_LENGTH].rstrip("/")
    return _ABOVE.sub("__", short) or "_"


class Names:
    """Gives every metric, or parameter, a key that MLflow takes, and keeps the tags that say what it was called.

    Args:
        tags: the run's, as stored.
        keys: the metrics, or parameters, it has.
        is_of_files: the store is MLflow's folder of files, in which `a` is a file and `a/b` needs a folder `a`.
        tag: what the tags begin with.
    """

    def __init__(
        self, tags: Mapping[str, str], keys: Iterable[str], *, is_of_files: bool = False, tag: str = NAMES
    ) -> None:
        self._is_of_files = is_of_files
        self._tag = tag
        self._parts: list[dict[str, str]] = [_part(tags[key]) for key in numbered(tags, tag)]
        # Keys that no tag names are what was recorded.
        self._name = {**{key: key for key in keys}, **{key: name for part in self._parts for key, name in part.items()}}
        self._key = {name: key for key, name in self._name.items()}
        # Of a store of files: as `a/b` is there, no metric can be called `a` anymore.
        self._folders = {folder for key in self._name for folder in _folders(key)}
        self._changed: set[int] = set()

    def key(self, name: str) -> str:
        """Return the key of a name, the same each time."""
        key = self._key.get(name)
        if key is None:
            key = self._key[name] = self._free(fitting(name))
            self._name[key] = name
            self._folders.update(_folders(key))
            if key != name:
                self._note(key, name)
        return key

    def name(self, key: str) -> str:
        """Return what a key was called."""
        return self._name.get(key, key)

    @property
    def mapped(self) -> Mapping[str, str]:
        """Name → key, of those that differ."""
        return {name: key for key, name in self._name.items() if key != name}

    @property
    def unwritten(self) -> dict[str, str]:
        """Tags to write before the points of new metrics."""
        return {f"{self._tag}.{part}": _written(self._parts[part]) for part in sorted(self._changed)}

    def mark_written(self) -> None:
        """Note that `unwritten` is stored."""
        self._changed.clear()

    def _free(self, wanted: str) -> str:
        wanted = self._beside_files(wanted) if self._is_of_files else wanted
        if self._is_free(wanted):
            return wanted
        # The number counts for the length of a key, too.
        numbered = (f"{wanted[: MAX_LENGTH - len(str(number)) - 1]}_{number}" for number in count(2))
        return next(key for key in numbered if self._is_free(key))

    def _is_free(self, key: str) -> bool:
        return key not in self._name and not (self._is_of_files and key in self._folders)

    def _beside_files(self, key: str) -> str:
        """Return `a.b` for `a/b` where `a` is a metric, and so a file; `a.b.c` for `a/b/c` where `a.b` is one, too."""
        while taken := next((folder for folder in _folders(key) if folder in self._name), None):
            key = f"{taken}.{key[len(taken) + 1 :]}"
        return key

    def _note(self, key: str, name: str) -> None:
        if not self._parts or len(_written(self._parts[-1])) + len(_written({key: name})) > _MAX_TAG:
            self._parts.append({})
        self._parts[-1][key] = name
        self._changed.add(len(self._parts) - 1)


def _written(names: Mapping[str, str]) -> str:
    # As they are: MLflow counts characters, and escaped as ASCII the 1,000 of a name may take 12,000.
    return json.dumps(names, ensure_ascii=False)


def _part(text: str) -> dict[str, str]:
    try:
        part: dict[str, str] = json.loads(text)
    except ValueError:
        return {}  # one that MLflow has cut, of a parameter with a longer name: the run goes on
    return part


def _folders(key: str) -> list[str]:
    """Return what would be folders of a key that is a path, the shortest first."""
    return [key[:at] for at, character in enumerate(key) if character == "/"]


def numbered(tags: Mapping[str, str], tag: str) -> list[str]:
    """Return the tags `<tag>.0`, `<tag>.1`, … of a run, in that order."""
    return sorted((key for key in tags if key.startswith(f"{tag}.")), key=lambda key: int(key.rpartition(".")[2]))
