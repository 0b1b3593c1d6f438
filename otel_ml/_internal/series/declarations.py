"""What `define_metric()` said: of one name, or of all that a glob matches, which gives way; and what contradicts it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from otel_ml._internal.error_reporting import reporter
from otel_ml.wire.published_name import by_precedence, matches
from otel_ml.wire.reduction import Reduction

__all__ = ["NOTHING", "Declaration", "conflict_of", "of_globs", "of_name", "other_unit_of", "report"]

NOTHING = Reduction(unsaid=("across",))
"""What is asked for where nobody asks for anything: the mean is the default."""


class Declaration(NamedTuple):
    """What one call said of the names that `pattern` stands for."""

    pattern: str
    reduction: Reduction
    unit: str = ""
    description: str = ""


def of_name(declared: Iterable[Declaration], name: str) -> Declaration:
    """Return what was said of a name itself, or of a glob as such: in each part what was said first."""
    return _joined(name, (one for one in declared if one.pattern == name))


def of_globs(declared: Iterable[Declaration], name: str) -> Declaration:
    """Return what globs say of a name: in each part the one with more characters of its own."""
    # A name that equals the pattern is that metric (docs/protocol.md §2.9), and is found by `of_name()`.
    globs = [one for one in declared if one.pattern != name and matches(name, one.pattern)]
    return _joined(name, sorted(globs, key=lambda one: by_precedence(one.pattern)))


def _joined(pattern: str, declared: Iterable[Declaration]) -> Declaration:
    """Return all that is said, each part as the first says it."""
    found = Declaration(pattern, NOTHING)
    # `joined()` takes over what is not said yet: of two that say one part the first counts.
    for _, reduction, unit, description in declared:
        found = Declaration(
            pattern, found.reduction.joined(reduction), found.unit or unit, found.description or description
        )
    return found


def report(conflict: str, other_unit: str) -> None:
    """Report what is not used, once each; nothing where both are empty."""
    if conflict:
        reporter.wrong("reduction-conflict", conflict)
    if other_unit:
        reporter.wrong("unit-conflict", other_unit)


def conflict_of(name: str, known: Reduction, reduction: Reduction) -> str:
    """Return how a reduction contradicts the one that is known; empty where it does not."""
    if not known.contradicts(reduction):
        return ""
    return (
        f"Metric {name!r} is reduced by '{known}' in this process, so '{reduction}' is not used. "
        "A metric has one reduction: give both as a tuple, or rename one."
    )


def other_unit_of(name: str, known: str, unit: str) -> str:
    """Return how a unit differs from the one that is known; empty where it does not."""
    if not unit or not known or known == unit:
        return ""
    return (
        f"Metric {name!r} is in {known!r} in this process, so the unit {unit!r} is not used. "
        "Record it in one unit, or under two names."
    )
