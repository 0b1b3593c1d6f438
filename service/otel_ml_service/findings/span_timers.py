"""The timers of a step from the spans of its ranks, where nobody kept the seconds of each rank."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from otel_ml_exporters.records import Span
from otel_ml_service.findings.nesting import parents_of
from otel_ml_service.findings.phases import in_order
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["span_timers"]


def span_timers(of_rank: Mapping[int, Sequence[Span]]) -> tuple[StepTimers, Mapping[str, str]]:
    """Return the timers of a step, and which timer is inside of which.

    Args:
        of_rank: spans of one step, of each rank in the order in which they begin.

    Examples:
        >>> def span(rank: int, name: str, start: int, end: int) -> Span:
        ...     return Span("aa", f"{rank}{name}", None, name, start, end, "trainer", rank, "step", 1)
        >>> spans = {0: [span(0, "forward", 0, 5 * 10**9)], 1: [span(1, "forward", 0, 7 * 10**9)]}
        >>> timers, parents = span_timers(spans)
        >>> timers.phases, timers.seconds.tolist(), parents
        (('forward',), [[5.0], [7.0]], {})
    """
    ranks = sorted(of_rank)
    phases = in_order(tuple(dict.fromkeys(span.name for span in of_rank[rank])) for rank in ranks)
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    for rank in ranks:
        for span in of_rank[rank]:
            seconds[rank, span.name] += (span.end_ns - span.start_ns) / 1e9
    table = np.array([[seconds.get((rank, phase), math.nan) for phase in phases] for rank in ranks])
    # All ranks run one program: the first that shows any nesting stands for it.
    parents = next((found for rank in ranks if (found := parents_of(of_rank[rank]))), {})
    return StepTimers(tuple(ranks), phases, table.reshape(len(ranks), len(phases))), parents
