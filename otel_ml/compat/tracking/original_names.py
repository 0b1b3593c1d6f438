"""Names of an original that are not ours: its own package has them, where it is installed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.explanation import explained

__all__ = ["name_of_the_original"]


def name_of_the_original(package: str, name: str, *, is_of_the_server: bool) -> Any:
    """Return what the original calls so; one that may record is said to know nothing of the run here.

    Args:
        package: of the original.
        name: of a function, a class or a module.
        is_of_the_server: it asks the original's server, and records nothing.

    Raises:
        AttributeError: there is no such name, or the package is not installed.
    """
    found = None if name.startswith("_") else _found(package, name)
    if found is None:
        sentence = (
            f"otel_ml.compat.{package} has no {name!r}, and the package {package!r} has none or is not installed."
        )
        raise AttributeError(explained(sentence, "not-kept"))
    if not is_of_the_server:
        not_kept(f"{package}.{name}", f"it is that of the package {package!r} itself, which knows nothing of this run.")
    return found


def _found(package: str, name: str) -> Any:
    try:
        original = import_module(package)
    except ImportError:
        return None
    if original.__name__.startswith("otel_ml."):
        return None  # a program has put our module in the place of the original's
    found = getattr(original, name, None)
    return found if found is not None else _submodule(package, name)


def _submodule(package: str, name: str) -> ModuleType | None:
    try:
        return import_module(f"{package}.{name}")
    except ImportError:
        return None
