"""Which steps lack a rank: what their rows say, and since when a rank is silent, which later rows do not count."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from otel_ml_exporters.records import Table

__all__ = ["Silence", "silences", "steps_without_a_rank"]


class Silence(NamedTuple):
    """Steps of which nothing of a rank arrived; `last` is None where that lasts."""

    rank: int
    first: int
    last: int | None

    def covers(self, step: int) -> bool:
        """Whether the rank said nothing of a step."""
        return self.first <= step and (self.last is None or step <= self.last)


def silences(findings: Table | None) -> list[Silence]:
    """Return which ranks of a role and axis were silent, by rank, as the table of its findings says.

    Examples:
        >>> columns, row = ("kind", "rank", "since", "until"), ("silent", 2, 31, None)
        >>> silences(Table(1, 0.0, "otel_ml/findings", "step", 59, columns, (row, ("slow", 1, 3, 9))))
        [Silence(rank=2, first=31, last=None)]
    """
    rows = [] if findings is None else [dict(zip(findings.columns, row, strict=False)) for row in findings.rows]
    found = [[row.get(name) for name in ("rank", "since", "until")] for row in rows if row.get("kind") == "silent"]
    silent = [
        Silence(rank, since, until if isinstance(until, int) else None)
        for rank, since, until in found
        if isinstance(rank, int) and isinstance(since, int)
    ]
    return sorted(silent, key=lambda one: (one.rank, one.first))


def steps_without_a_rank(recorded: Iterable[int], lacking: Collection[int], silent: Collection[Silence]) -> set[int]:
    """Return the steps that are not of all ranks.

    Args:
        recorded: all steps there are.
        lacking: those whose row says that a member was missing. Who is silent for long is no longer a member.
        silent: ranks, and in which steps.

    Examples:
        >>> sorted(steps_without_a_rank(range(8), {2}, [Silence(1, 6, None)]))
        [2, 6, 7]
    """
    found = set(lacking)
    if not silent:  # of nearly all runs, which may be long
        return found.intersection(recorded)
    return {step for step in recorded if step in found or any(one.covers(step) for one in silent)}
