"""What is found: who is slow or silent, who has more to do, times that go with the data, pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["COLUMNS", "Finding", "Kind", "Level", "mean_with", "rank_number", "role_of_place", "role_place", "row_of"]

Kind = Literal["slow", "silent", "stage", "load", "shape", "pause"]
Level = Literal["warning", "critical"]

NOBODY = "nobody"
"""The place of a finding without a culprit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is the matter somewhere, as it stood at step `last`.

    Attributes:
        kind: `slow` or `silent`, of a rank; `stage` where a pipeline stage has more work than the others; `load` where
            ranks are always given more to do, and are not slow; `shape` where the times of ranks go up and down
            together, with what they are given, and nobody is slow; `pause` where the job stands still now and then.
        rank: which one; None where it is not a rank, or several are slow.
        phase: name of the timer without `time/`; empty for a silent rank and a stage, two timers for a shape; empty for
            pauses in whatever a rank works at.
        since: first step of the trouble; `last` is the newest one that was looked at.
        level: now, or of the mean slow-down where it is over.
        is_over: the rank is as quick as the others again, or was heard again; there were no pauses for long.
        slowdown: how much longer than usual it took, as a share of the usual time of peers, of the other stages, or of
            the mean rank: lately, or over all steps since `since` where it is over; 0 for a silent rank. Of pauses, as
            a share of the usual step, and over all steps since `since`, those without a pause too.
        extra_s: the same in seconds per step.
        cost_s: the same, summed over all steps since `since`.
        trace_id, span_id: of the span that shows it, in hexadecimal digits; empty where its rank sent none.
        span_name, span_step: which timer that is, and of which step: the nearest one where spans were limited, the last
            one of a rank that fell silent.
        stage: of a `stage`, which one.
        correlation: of a `shape`, between its two timers.
        saved_s: seconds that a step would be shorter without it (`what_if.py`), mean over its steps; less than
            `extra_s` where somebody else is nearly as late; of a load and a shape lately. Of a stage: if its work
            were spread over all of them.
        where: of several ranks, the host or the coordinates that they have in common: `host n3`, `dp 2`;
            `role generator` where nearly all of it take longer than before, and no other role does.
        ranks: of several ranks, which ones are slow, ascending.
        times: of a `pause`, how many steps had one.
        every: of a `pause`, the steps from one to the next; None where they come as they like.
        amount: the metric that says how much ranks are given to do: of a `load`; of a `shape`, where the times of each
            rank go with it. Empty where none does.
        given: of a `load`, how many times as much as its peers.
        others_wait: of who is slow, whether most other ranks wait for it; where they do not, no step of theirs is
            shorter without it, and `saved_s` is 0.
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
    where: str = ""
    ranks: tuple[int, ...] = ()
    times: int = 0
    every: int | None = None
    amount: str = ""
    given: float = 0.0
    others_wait: bool = True

    @property
    def place(self) -> str:
        """Where it is: `rank 3`, `stage 3`, `host n3`, or `nobody`.

        Examples:
            >>> Finding("slow", 3, "forward", "warning", 40, 60).place
            'rank 3'
            >>> Finding("stage", None, "", "warning", 40, 60, stage=3).place
            'stage 3'
        """
        if self.where:
            return self.where
        if self.rank is not None:
            return f"rank {self.rank}"
        return NOBODY if self.stage is None else f"stage {self.stage}"

    @property
    def subject(self) -> tuple[str, str, Kind]:
        """What is the matter with whom: (place, phase, kind), the same while it lasts."""
        return self.place, self.phase, self.kind


COLUMNS = (
    "level", "kind", "rank", "phase", "since", "until", "slowdown", "s per step", "s in all",
    "span of", "at step", "span", "trace", "place", "s saved per step", "ranks", "times", "every",
    "amount", "given", "others wait",
)  # fmt: skip
"""Of the table of findings; `until` is empty while the trouble lasts, those of spans where its rank sent none.

`others wait` is `no`, or empty. `s per step` and `s saved per step` are means over all its steps, so that they are the
same wherever they are shown.
"""


def mean_with(finding: Finding, saved_s: float) -> float:
    """Return what its steps would be shorter without it, with the newest one: the mean over all since it began.

    Those before it was found count as the first one that is known.

    Examples:
        >>> round(mean_with(Finding("slow", 3, "forward", "warning", 40, 43, saved_s=0.2), 0.4), 3)
        0.25
    """
    if not finding.saved_s:
        return saved_s
    return finding.saved_s + (saved_s - finding.saved_s) / (finding.last - finding.since + 1)


_ROLE = "role "


def role_place(role: str) -> str:
    """Return the place of what is so of a role as a whole.

    Examples:
        >>> role_place("generator"), role_of_place("role generator"), role_of_place("host n1")
        ('role generator', 'generator', '')
    """
    return _ROLE + role


def role_of_place(place: str) -> str:
    """Return the role that a place is; nothing where it is something else."""
    return place.removeprefix(_ROLE) if place.startswith(_ROLE) else ""


def rank_number(finding: Finding) -> int:
    """Return the rank that a finding is about; -1 where it is about none, or several."""
    return -1 if finding.rank is None else finding.rank


def row_of(finding: Finding) -> tuple[str | int | float | None, ...]:
    """Return the row of a finding in the table.

    Examples:
        >>> row_of(Finding("slow", 3, "forward", "warning", 40, 60, True, 0.31, 0.0312, 0.624))[:9]
        ('warning', 'slow', 3, 'forward', 40, 60, 0.31, 0.029714, 0.624)
        >>> row_of(Finding("stage", None, "", "warning", 40, 60, stage=3, saved_s=0.2))[13:18]
        ('stage 3', 0.2, None, None, None)
    """
    measured = finding.kind != "silent"
    per_step_s = finding.cost_s / (finding.last - finding.since + 1) if finding.cost_s else finding.extra_s
    # No step is shorter by more than it lost. Both are means, but before it was found the savings are a guess.
    saved_s = finding.saved_s if finding.kind == "stage" else min(finding.saved_s, per_step_s)
    return (
        finding.level,
        finding.kind,
        finding.rank,
        finding.phase,
        finding.since,
        finding.last if finding.is_over else None,
        # Of a load `given` says how much more it is: nobody is slow.
        round(finding.slowdown, 4) if measured and finding.kind != "load" else None,
        round(per_step_s, 6) if measured else None,
        round(finding.cost_s, 6) if measured else None,
        finding.span_name or None,
        finding.span_step,
        finding.span_id or None,
        finding.trace_id or None,
        finding.place,
        round(saved_s, 6) if measured else None,
        " ".join(map(str, finding.ranks)) or None,
        finding.times or None,
        finding.every,
        finding.amount or None,
        round(finding.given, 4) or None,
        None if finding.others_wait else "no",
    )
