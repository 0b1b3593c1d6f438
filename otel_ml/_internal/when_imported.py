"""Do something once another package is there: nothing of it is imported for it.

A finder and a loader are what has their methods: the classes of `importlib.abc` take 30 modules to import.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["forget_import", "when_imported"]


def when_imported(name: str, do: Callable[[], None]) -> None:
    """Call `do` now if the module `name` is loaded, else once it has been. It must not raise: the import would."""
    if name in sys.modules:
        do()
    elif not any(finder.module == name for finder in sys.meta_path if isinstance(finder, _Watcher)):
        sys.meta_path.insert(0, _Watcher(name, do))


def forget_import(name: str) -> None:
    """Do nothing anymore when the module `name` is imported."""
    for watcher in [finder for finder in sys.meta_path if isinstance(finder, _Watcher) and finder.module == name]:
        sys.meta_path.remove(watcher)


class _Watcher:
    """Tells when a module is imported, and is gone then."""

    def __init__(self, module: str, do: Callable[[], None]) -> None:
        self.module = module
        self._do = do

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self._do)  # type: ignore[assignment] # by its methods
        return spec


class _TellingLoader:
    """Loads a module as its own loader does, then tells."""

    def __init__(self, loader: Any, do: Callable[[], None]) -> None:
        self._loader = loader
        self._do = do

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        # Its own again: others ask a module's loader for its sources and its files.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._do()
