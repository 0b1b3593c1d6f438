"""Where the time of one step goes, from the spans of its ranks: the front where phases are a line, else the path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otel_ml_exporters.records import Span
from otel_ml_service.findings.critical_path import account_of, critical_path
from otel_ml_service.findings.frontier import Exposed, exposed
from otel_ml_service.findings.nesting import BESIDE
from otel_ml_service.findings.peers import is_pipeline
from otel_ml_service.findings.span_timers import span_timers

__all__ = ["StepAccount", "account_of_step"]


@dataclass(frozen=True, slots=True)
class StepAccount:
    """What adds up to the step of the slowest rank.

    Attributes:
        phases: what each exposes, and the rank at the front, or the one that has most of it on the path.
        is_path: whether it is the longest path: of a pipeline, of one rank, of timers that run beside others.
        spans: ids of those on the path.
    """

    phases: Sequence[Exposed]
    is_path: bool
    spans: frozenset[str] = frozenset()

    @property
    def ranks(self) -> set[int]:
        """Ranks that were at the front, or are on the path."""
        return {entry.rank for entry in self.phases if entry.seconds > 0}

    def has(self, span: Span) -> bool:
        """Whether a span is at the front, or on the path."""
        if self.is_path:
            return span.span_id in self.spans
        return any((span.name, span.rank) == (entry.phase, entry.rank) for entry in self.phases if entry.seconds > 0)


def account_of_step(of_rank: Mapping[int, Sequence[Span]]) -> StepAccount:
    """Return the account of a step.

    Args:
        of_rank: spans of the step, of each rank in the order in which they begin.
    """
    if line := _line(of_rank):
        return StepAccount(line, is_path=False)
    path = critical_path(of_rank)
    return StepAccount(account_of(path), is_path=True, spans=frozenset(one.span_id for one in path if one.span_id))


def _line(of_rank: Mapping[int, Sequence[Span]]) -> list[Exposed]:
    """Return the account of a step whose phases are a line; empty where they are none, as those of one rank."""
    if len(of_rank) < 2:
        return []
    timers, parents = span_timers(of_rank)
    return [] if is_pipeline(timers.phases) or BESIDE in parents.values() else exposed(timers, parents)
