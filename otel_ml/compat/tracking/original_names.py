"""Names of an original that are not ours: its own package has them, or what is used instead is said."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.place_of_the_original import original_in_its_place
from otel_ml.explanation import explained
from otel_ml.warn_once import say

__all__ = ["name_of_the_original", "not_here"]


def name_of_the_original(package: str, name: str, *, is_of_the_server: bool) -> Any:
    """Return what the original calls so; one that may record is said to know nothing of the run here.

    Args:
        package: of the original.
        name: of a function, a class or a module.
        is_of_the_server: it asks the original's server, and records nothing.

    Raises:
        AttributeError: there is no such name, or the package is not installed.
    """
    # Its own modules ask each other for names with one `_`, also where ours stands in the place of one.
    found = None if name.startswith("__") else _found(package, name)
    if found is None:
        sentence = (
            f"otel_ml.compat.{package} has no {name!r}, and the package {package!r} has none or is not installed."
        )
        raise AttributeError(explained(sentence, "not-kept"))
    if not is_of_the_server and not name.startswith("_"):
        not_kept(f"{package}.{name}", f"it is that of the package {package!r} itself, which knows nothing of this run.")
    return found


def _found(package: str, name: str) -> Any:
    with original_in_its_place(package.partition(".")[0]):
        try:
            original = import_module(package)
        except ImportError:
            return None
        found = getattr(original, name, None)
        # A submodule that nobody has imported yet is not an attribute of its package.
        return found if found is not None else _submodule(package, name)


def _submodule(package: str, name: str) -> ModuleType | None:
    try:
        return import_module(f"{package}.{name}")
    except ImportError:
        return None


def not_here(module: str, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error of a module that has no `name`; said too, as `from … import name` shows no error's text.

    Args:
        module: that is asked for it.
        name: what it is asked for.
        instead: names of the original → what is used instead, as a sentence.
    """
    if name not in instead:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    sentence = f"{module} has no {name}: {instead[name]}"
    say("not-kept", sentence)
    return AttributeError(sentence)
