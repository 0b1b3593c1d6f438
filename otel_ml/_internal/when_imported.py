"""Do something once another package is there: nothing of it is imported for it.

A finder and a loader are what has their methods: the classes of `importlib.abc` take 30 modules to import.
"""

from __future__ import annotations

import importlib.machinery
import sys
from _thread import get_ident
from collections.abc import Callable, Sequence
from contextlib import suppress
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
        with suppress(ValueError):  # a signal handler that ends the run here has removed it
            sys.meta_path.remove(watcher)


class _Watcher:
    """Tells once a module has been imported, and is gone then.

    Until then it stays: a program may look whether there is such a module, or try to import it, more than once.
    """

    def __init__(self, module: str, do: Callable[[], None]) -> None:
        self.module = module
        self._do = do
        self._asking = set[int]()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # Another one that asks all others asks this one, too.
        if fullname != self.module or get_ident() in self._asking:
            return None
        self._asking.add(get_ident())
        try:
            spec = self._found_by_others(fullname, path, target)
        finally:
            self._asking.discard(get_ident())
        # A namespace package may have no loader, and one of an old kind loads a module without this method.
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _TellingLoader(spec.loader, self._tell)  # type: ignore[assignment] # by its methods
        return spec

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        """Ask as an import does: a package that was installed to be edited has a finder of its own."""
        for finder in list(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find_spec is None else find_spec(fullname, path, target)
            if spec is not None:
                return spec  # type: ignore[no-any-return]
        return None

    def _tell(self) -> None:
        if self in sys.meta_path:  # else it was told, or `forget_import()` was called, since the module was looked for
            sys.meta_path.remove(self)
            self._do()


class _TellingLoader:
    """Loads a module as its own loader does, then tells."""

    def __init__(self, loader: Any, tell: Callable[[], None]) -> None:
        self._loader = loader
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        # Who only looks for the module may ask its loader for sources and files.
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        # Its own again: others ask a module's loader for its sources and its files.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._tell()
