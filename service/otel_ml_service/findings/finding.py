"""What is found: a rank that is slow in a phase, or silent, from a step on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COLUMNS", "Finding", "Kind", "Level", "row_of"]

Kind = Literal["slow", "silent"]
Level = Literal["warning", "critical"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One rank's trouble, as it stood at step `last`.

    Attributes:
        phase: name of the timer without `time/`; empty for a silent rank.
        since: first step of the trouble; `last` is the newest one that was looked at.
        level: now, or of the mean slow-down where it is over.
        is_over: the rank is as quick as the others again, or was heard again.
        slowdown: how much longer than the usual rank it took, as a share of the usual time: lately, or over all steps
            since `since` where it is over; 0 for a silent rank.
        extra_s: the same in seconds per step. Where ranks wait for each other in each step, the job loses it.
        cost_s: the same, summed over all steps since `since`.
        trace_id, span_id: of the span that shows it, in hexadecimal digits; empty where its rank sent none.
        span_name, span_step: which timer that is, and of which step: the nearest one where spans were limited, the last
            one of a rank that fell silent.
    """

    kind: Kind
    rank: int
    phase: str
    level: Level
    since: int
    last: int
    is_over: bool = False
    slowdown: float = 0.0
    extra_s: float = 0.0
    cost_s: float = 0.0
    trace_id: str = ""
    span_id: str = ""
    span_name: str = ""
    span_step: int | None = None


COLUMNS = (
    "level", "kind", "rank", "phase", "since", "until", "slowdown", "s per step", "s in all",
    "span of", "at step", "span", "trace",
)  # fmt: skip
"""Of the table of findings; `until` is empty while the trouble lasts, the last four where its rank sent no span."""


def row_of(finding: Finding) -> tuple[str | int | float | None, ...]:
    """Return the row of a finding in the table.

    Examples:
        >>> row_of(Finding("slow", 3, "forward", "warning", 40, 60, True, 0.31, 0.0312, 0.624))
        ('warning', 'slow', 3, 'forward', 40, 60, 0.31, 0.0312, 0.624, None, None, None, None)
    """
    measured = finding.kind == "slow"
    return (
        finding.level,
        finding.kind,
        finding.rank,
        finding.phase,
        finding.since,
        finding.last if finding.is_over else None,
        round(finding.slowdown, 4) if measured else None,
        round(finding.extra_s, 6) if measured else None,
        round(finding.cost_s, 6) if measured else None,
        finding.span_name or None,
        finding.span_step,
        finding.span_id or None,
        finding.trace_id or None,
    )
