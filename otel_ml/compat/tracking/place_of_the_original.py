"""Our module in the place of the original in `sys.modules`: which submodules `import` finds, and the original itself.

::

    sys.modules["wandb"] = otel_ml.compat.wandb       import wandb.util       ours: it has a module of that name
                                                      import wandb.sdk.lib    W&B's own, which is imported while W&B's
                                                                              package is back in its place

What is W&B's own has W&B's classes: they are no others than those of the modules that W&B has imported itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept

__all__ = ["find_submodules", "original_in_its_place"]

Own = Callable[[str], Any]
"""Returns what stands for a submodule, `util` or `sdk.wandb_run`; None where that is the original's."""

_MOVING = RLock()

_ORIGINALS: dict[str, ModuleType] = {}
"""Modules in whose place ours are: to import one again would make a second one."""

_OWN: dict[str, Own] = {}


def find_submodules(package: str, own: Own, *, of_the_server: Collection[str] = ()) -> None:
    """Have `import` find the submodules of a package in whose place a program puts our module.

    Args:
        package: the original's.
        own: which submodules are ours.
        of_the_server: the original's that record nothing.
    """
    _OWN[package] = own
    sys.meta_path.insert(0, _Submodules(package, own, of_the_server))


@contextmanager
def original_in_its_place(package: str) -> Iterator[None]:
    """Have `import` find the original, also where a program has put our module in its place.

    Where the program has put the original back, our submodules that are still in its places go with our module.
    """
    # Without the lock: in nearly every program nothing of ours stands there, and nothing is moved.
    if not any(map(_is_ours, _modules_of(package).values())):
        yield
        return
    # Other threads that import while the originals are back get the originals, too. The lock only keeps two moves
    # apart; it is reentrant, as the import inside may come here again.
    with _MOVING:
        of_ours = _take_away(package)
        try:
            yield
        finally:
            # Not where only submodules of ours were left over: the program has put the original back, and they would
            # be strangers in its package.
            if package in of_ours:
                _put_back(package, of_ours)


def _take_away(package: str) -> dict[str, Any]:
    """Put the originals into the places of ours; return what was there."""
    of_ours = {name: module for name, module in _modules_of(package).items() if _is_ours(module)}
    for name in of_ours:
        del sys.modules[name]
    sys.modules.update({name: _ORIGINALS[name] for name in of_ours if name in _ORIGINALS})
    return of_ours


def _put_back(package: str, of_ours: dict[str, Any]) -> None:
    """Put ours into their places again, also into those of submodules that were imported meanwhile."""
    own = _OWN.get(package)
    for name, module in _modules_of(package).items():
        # What was imported meanwhile is the original's. Where we have a module of that name ours takes its place, and
        # the original's is kept for the next time.
        ours = of_ours.get(name) or (own(name.partition(".")[2]) if own is not None else None)
        if ours is not None:
            _ORIGINALS[name] = module
            of_ours[name] = ours
    sys.modules.update(of_ours)


def _modules_of(package: str) -> dict[str, Any]:
    known = list(sys.modules.items())
    return {name: module for name, module in known if name == package or name.startswith(f"{package}.")}


def _is_ours(module: object) -> bool:
    # What stands for a submodule need not be a module: a `Flavor` of compat.mlflow is an object.
    of = getattr(module, "__name__", None) if isinstance(module, ModuleType) else type(module).__module__
    return str(of).startswith("otel_ml.")


class _Submodules(MetaPathFinder):
    """Finds the submodules of an original in whose place our module stands."""

    def __init__(self, package: str, own: Own, of_the_server: Collection[str]) -> None:
        self._package = package
        self._own = own
        self._of_the_server = of_the_server

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the submodule, which exists already; None where the original stands in its own place."""
        del path, target
        package, _, name = fullname.partition(".")
        # Our finder stays in `sys.meta_path` for good, also when the program imports the original alone.
        if package != self._package or not _is_ours(sys.modules.get(package)):
            return None
        found = self._own(name)
        if found is None:
            with original_in_its_place(package):
                import_module(fullname)
            # Out of its place, or `import` takes the answer of a finder for a stale one, and loads it a second time.
            found = sys.modules.pop(fullname)
            if name.partition(".")[0] not in self._of_the_server:
                not_kept(fullname, f"it is that of the package {package!r} itself, which knows nothing of this run.")
        return ModuleSpec(fullname, _Found(found), is_package=True)  # which may have submodules, too


class _Found(Loader):
    """Loads a module that exists already, and leaves it as it is."""

    def __init__(self, found: Any) -> None:
        self._found = found
        self._spec = vars(found).get("__spec__")

    def create_module(self, spec: ModuleSpec) -> Any:
        """Return the module."""
        del spec
        return self._found

    def exec_module(self, module: ModuleType) -> None:
        """Undo what `import` has said of the module."""
        module.__spec__ = self._spec
