"""What became of each public name of an original: the page and the tests ask the same question."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from tests.originals.originals import Original, names_of

__all__ = ["Verdict", "counted", "verdict_of", "verdicts"]

Verdict = Literal["as there", "better", "accepted and reported", "its own package's", "not here", "missing"]


def verdicts(original: Original) -> Mapping[str, Verdict]:
    """Return name → what became of it; `missing` is a mistake of ours."""
    return {name: verdict_of(original, name) for name in names_of(original.key)}


def counted(original: Original) -> Counter[str]:
    """Return verdict → number of names."""
    return Counter(verdicts(original).values())


def verdict_of(original: Original, name: str) -> Verdict:
    """Return what became of one name."""
    owner = name.partition(".")[0]
    if name in original.absent or owner in original.absent:
        return "not here"
    if not _is_ours(original, name):
        return "its own package's" if original.package and "." not in name else "missing"
    if name in original.said:
        return "accepted and reported"
    return "better" if name in original.better else "as there"


def _is_ours(original: Original, name: str) -> bool:
    found: Any = importlib.import_module(original.module)
    *owners, last = name.split(".")
    for owner in owners:
        found = vars(found).get(owner) or getattr(found, owner, None)
    if not inspect.isclass(found):
        return last in vars(found) or last in _OF_A_RUN or last in _loaded_late(found)
    return hasattr(found, last) or any(_sets(base, last) for base in found.__mro__)


_OF_A_RUN = frozenset({"config", "run", "summary"})
"""What `compat.wandb` has as long as there is a run."""


def _loaded_late(module: Any) -> tuple[str, ...]:
    """Return names that a module has and does not load at once."""
    return tuple(getattr(module, "__all__", ()))


def _sets(owner: type, member: str) -> bool:
    """Whether instances have a member that the class itself has not: annotated, or set when one is made."""
    if member in getattr(owner, "__annotations__", {}):
        return True
    return owner.__module__.startswith("otel_ml") and f"self.{member}" in inspect.getsource(owner)
