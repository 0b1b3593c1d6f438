"""Modules of the service by the names they had in this package: scripts that import them go on working.

The module is the same object under both names, so a class is one class whichever of them it was imported by.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["keep_former_names"]

_HERE, _THERE = "otel_ml_exporters", "otel_ml_service"

_RENAMED = {"experiments": "live_runs", "runs": "stored_runs"}

_MOVED = frozenset({
    "aggregation", "cli", "config", "config_file", "delivery", "demo", "env", "exporter_makers", "findings",
    "own_process", "receiver", "report", "service", "storage", "telemetry", "versions", *_RENAMED,
})  # fmt: skip


class _OtherName(Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has put the other name's there


class _FormerNames(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        first, dot, inner = rest.partition(".")
        if package != _HERE or first not in _MOVED:
            return None
        now = f"{_THERE}.{_RENAMED.get(first, first)}{dot}{inner}"
        module = importlib.import_module(now)
        # Of a module in a package that was moved it is said once, for the package.
        if not dot:
            warnings.warn(f"{name} is {now} now. Import it from there.", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, _OtherName(module))


def keep_former_names() -> None:
    """Have the modules of the service be found under their former names, too; safe twice."""
    if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _FormerNames())  # before the one that looks into the folders of a parent
