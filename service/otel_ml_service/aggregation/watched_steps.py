"""What was found in the steps of one role and axis, and what of it is still to be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from otel_ml_exporters.records import Span
from otel_ml_service.findings.finding import Finding, Kind, Level
from otel_ml_service.findings.heatmap import Heatmap
from otel_ml_service.findings.nesting import order_of, parents_of
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["PUBLISHED_EVERY", "WatchedSteps"]

PUBLISHED_EVERY = 10
"""Closed steps from one table of findings to the next, at least."""

_KEPT = 100
"""Findings that are over and still shown; older ones are in earlier tables."""


@dataclass(slots=True)
class WatchedSteps:
    """One role and axis: the attempt that is looked at, what was found, what is to be told.

    Attributes:
        over: findings that have ended, at most `_KEPT`.
        before: the same of older attempts, as far as their steps were not done again; `begun_at` is the first step of
            the attempt that is looked at.
        is_published: whether the series in the last row named a slow rank.
        closes: steps closed since the last table; at first so many that the first finding is published at once.
        is_news: whether something was found that no table holds yet.
        told: subject → the level that a person was told last.
        step, time_ns: of the step that closed last.
        timers: of the last step that somebody had gone on from.
        parents: timer → the one around it, or `BESIDE`, as far as spans show it; of the timers `nested`, looked at
            `nested_at` last; `has_spans` is whether there were any then.
        order: timers in the order in which spans show that they begin.
    """

    attempt: int
    step_findings: StepFindings = field(default_factory=StepFindings)
    heat: Heatmap = field(default_factory=Heatmap)
    over: list[Finding] = field(default_factory=list)
    before: list[Finding] = field(default_factory=list)
    begun_at: int = 0
    is_published: bool = False
    closes: int = PUBLISHED_EVERY
    is_news: bool = False
    told: dict[tuple[str, str, Kind], Level] = field(default_factory=dict)
    step: int = 0
    time_ns: int = 0
    timers: StepTimers | None = None
    parents: dict[str, str] = field(default_factory=dict)
    nested: tuple[str, ...] = ()
    nested_at: int = 0
    has_spans: bool = False
    order: tuple[str, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        """All that are remembered, in the order in which they began."""
        every = [*self.before, *self.over, *self.step_findings]
        return sorted(every, key=lambda one: (one.since, -1 if one.rank is None else one.rank, *one.subject))

    @property
    def is_unlinked(self) -> bool:
        """Whether something lasts of which no span is known."""
        return any(not finding.span_id for finding in self.step_findings.slow_ranks)

    def close(self, step: int, time_ns: int) -> None:
        """Note that a step closed: what an older attempt had found there is not so in the one that counts now."""
        self.step, self.time_ns, self.closes = step, time_ns, self.closes + 1
        # Of steps that are not done again: before the first one of this attempt, or beyond where that is by now.
        kept = [one for one in self.before if one.last < self.begun_at or one.since > step]
        self.is_news |= len(kept) < len(self.before)
        self.before = kept

    def go_on_from(self, timers: StepTimers) -> None:
        """Keep the timers of a step that nobody is in anymore: those who hang later are compared with it."""
        self.timers = timers

    def follow(self, attempt: int, step: int) -> None:
        """Look at another attempt, of which nothing is known, from its first step on."""
        self.attempt, self.step_findings, self.begun_at = attempt, StepFindings(), step
        self.before, self.over = [_up_to(one, step) for one in [*self.before, *self.over]][-_KEPT:], []
        self.heat, self.timers = Heatmap(), None

    def note(self, changes: Sequence[Finding]) -> None:
        """Keep what is over; a table is to tell of all of it."""
        self.over = [*self.over, *(finding for finding in changes if finding.is_over)][-_KEPT:]
        self.note_news()

    def note_news(self) -> None:
        """Note that something is to be told that no table holds."""
        self.is_news = True

    def tell(self) -> None:
        """Note that a table holds everything by now; the next one comes after some more closed steps."""
        self.is_news, self.closes = False, 0

    def publish(self, *, is_slow: bool) -> None:
        """Note whether the series of the row name a slow rank."""
        self.is_published = is_slow

    def learn_nesting(self, phases: tuple[str, ...], spans: Sequence[Span]) -> None:
        """Take from the newest spans which of these timers is around which, and in which order they begin."""
        self.nested, self.nested_at, self.has_spans = phases, self.step, bool(spans)
        self.parents |= parents_of(spans)
        self.order = order_of(spans)

    def tells(self, finding: Finding) -> bool:
        """Whether a person is told: when it begins, when it becomes critical first, and when it is over.

        Who falls silent is named where the step closes.
        """
        before = self.told.pop(finding.subject, None)
        if finding.is_over:
            return True
        if before is None or (finding.level == "critical" and before == "warning"):
            self.told[finding.subject] = finding.level
            return finding.kind != "silent"
        # Who was told to be critical is not told so again, whatever level it had in between.
        self.told[finding.subject] = before
        return False


def _up_to(finding: Finding, step: int) -> Finding:
    """Return a finding that began before a step as it was until then; another one, and one that was over, as it is."""
    if not finding.since < step <= finding.last:
        return finding
    return replace(finding, last=step - 1, cost_s=finding.extra_s * (step - finding.since))
