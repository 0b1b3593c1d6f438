"""What is reported where a metric is said to be reduced in two ways, or to have two units, within a process."""

from __future__ import annotations

from otel_ml._internal.error_reporting import reporter
from otel_ml.wire.reduction import Reduction

__all__ = ["conflict_of", "other_unit_of", "report"]


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
