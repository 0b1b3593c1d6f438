"""Which names W&B does not take as they are, and what they are called there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

__all__ = ["ChangedNames"]


class ChangedNames:
    """Remembers them in a file, for the exporter that goes on after this one: it writes the config's entry anew.

    Args:
        memory: the file.

    Attributes:
        mapped: name → key, of those that differ.
    """

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self.mapped: dict[str, str] = {}
        self._met: set[str] = set()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self.mapped = {str(name): str(key) for name, key in json.loads(memory.read_text()).items()}

    def learn(self, keys: Iterable[tuple[str, str]]) -> bool:
        """Take names and keys; return whether the config is to be written: what a killed process gave it may be lost.

        Raises:
            OSError: the file cannot be written; nothing was taken.
        """
        # By what this process has met, and not by the file: each process writes the config once, as a killed one may
        # have lost it.
        new = {name: key for name, key in keys if name != key and name not in self._met}
        # The file first: the next process writes the config's entry anew from it, and would leave these names out.
        if not new.items() <= self.mapped.items():
            self._write(self.mapped | new)
            self.mapped |= new
        self._met |= new.keys()
        return bool(new)

    def _write(self, mapped: dict[str, str]) -> None:
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._memory.with_suffix(".new")
        unfinished.write_text(json.dumps(mapped))
        unfinished.replace(self._memory)
