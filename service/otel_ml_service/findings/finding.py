"""What is found: a rank that is slow in a phase or silent, a stage with more work, times that go with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COLUMNS", "Finding", "Kind", "Level", "row_of"]

Kind = Literal["slow", "silent", "stage", "shape"]
Level = Literal["warning", "critical"]

NOBODY = "nobody"
"""The place of a finding without a culprit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the matter somewhere, as it stood at step `last`.

    Attributes:
        kind: `slow` or `silent`, of a rank; `stage` where a pipeline stage has more work than the others; `shape` where
            the times of ranks go up and down together, with what they are given, and nobody is slow.
        rank: which one; None where it is no rank.
        phase: name of the timer without `time/`; empty for a silent rank and a stage, two timers for a shape.
        since: first step of the trouble; `last` is the newest one that was looked at.
        level: now, or of the mean slow-down where it is over.
        is_over: the rank is as quick as the others again, or was heard again.
        slowdown: how much longer than usual it took, as a share of the usual time of peers, of the other stages, or of
            the mean rank: lately, or over all steps since `since` where it is over; 0 for a silent rank.
        extra_s: the same in seconds per step.
        cost_s: the same, summed over all steps since `since`.
        trace_id, span_id: of the span that shows it, in hexadecimal digits; empty where its rank sent none.
        span_name, span_step: which timer that is, and of which step: the nearest one where spans were limited, the last
            one of a rank that fell silent.
        stage: of a `stage`, which one.
        correlation: of a `shape`, between its two timers.
        saved_s: seconds that a step would be shorter without it (`what_if.py`), lately; less than `extra_s` where
            somebody else is nearly as late. Of a stage: if its work were spread over all of them.
    """

    kind: Kind
    rank: int | None
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
    stage: int | None = None
    correlation: float | None = None
    saved_s: float = 0.0

    @property
    def place(self) -> str:
        """Where it is: `rank 3`, `stage 3`, or `nobody`.

        Examples:
            >>> Finding("slow", 3, "forward", "warning", 40, 60).place
            'rank 3'
            >>> Finding("stage", None, "", "warning", 40, 60, stage=3).place
            'stage 3'
        """
        if self.rank is not None:
            return f"rank {self.rank}"
        return NOBODY if self.stage is None else f"stage {self.stage}"

    @property
    def subject(self) -> tuple[str, str]:
        """What is the matter with whom: (place, phase), the same while it lasts."""
        return self.place, self.phase


COLUMNS = (
    "level", "kind", "rank", "phase", "since", "until", "slowdown", "s per step", "s in all",
    "span of", "at step", "span", "trace", "place", "s saved per step",
)  # fmt: skip
"""Of the table of findings; `until` is empty while the trouble lasts, those of spans where its rank sent none."""


def row_of(finding: Finding) -> tuple[str | int | float | None, ...]:
    """Return the row of a finding in the table.

    Examples:
        >>> row_of(Finding("slow", 3, "forward", "warning", 40, 60, True, 0.31, 0.0312, 0.624))[:9]
        ('warning', 'slow', 3, 'forward', 40, 60, 0.31, 0.0312, 0.624)
        >>> row_of(Finding("stage", None, "", "warning", 40, 60, stage=3, saved_s=0.2))[-2:]
        ('stage 3', 0.2)
    """
    measured = finding.kind != "silent"
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
        finding.place,
        round(finding.saved_s, 6) if measured else None,
    )
