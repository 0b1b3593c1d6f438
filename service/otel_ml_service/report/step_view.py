"""What every rank of a role did in one step, and who was at the front after each phase, for the page to draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from otel_ml.quantities import seconds
from otel_ml_exporters.records import Span
from otel_ml_service.findings.frontier import Exposed
from otel_ml_service.findings.phases import STEP
from otel_ml_service.findings.step_account import StepAccount, account_of_step

__all__ = ["by_step", "step_view"]

_ROWS = 48
"""Ranks that are drawn: those at the front, and those that took longest."""
_BOXES = 100
"""Of a rank."""
_NAMED = 5
"""Phases; what others have is added up."""
_FRAMED = {
    False: "who was at the front has a frame.",
    True: "what is on the longest path, through who was waited for, has a frame.",
}

StepName = tuple[str, str, int]
"""Role, axis, step."""


def by_step(spans: Iterable[Span]) -> dict[StepName, list[Span]]:
    """Return the spans that belong to a step, by role, axis and step."""
    found: dict[StepName, list[Span]] = defaultdict(list)
    for span in spans:
        if span.step is not None and span.axis is not None:
            found[span.role, span.axis, span.step].append(span)
    return dict(found)


def step_view(name: StepName, spans: Sequence[Span]) -> dict[str, Any]:
    """Return the rows of a step with their timers as boxes, in microseconds from its beginning, and what it says."""
    role, axis, step = name
    of_rank: dict[int, list[Span]] = defaultdict(list)
    # Of timers that begin together the one around the others comes first: `_boxes` counts those that are open.
    for span in sorted(spans, key=lambda one: (one.start_ns, -one.end_ns)):
        of_rank[span.rank].append(span)
    account = account_of_step(of_rank)
    shown = _shown(of_rank, account.ranks)
    # Of the ranks that are drawn: one that is left out may have begun long before.
    begin = min(span.start_ns for rank in shown for span in of_rank[rank])
    end = max(span.end_ns for rank in shown for span in of_rank[rank])
    names = list(dict.fromkeys(span.name for rank in shown for span in of_rank[rank]))
    rows = [
        {"who": f"{role[:10]} {rank}", "boxes": _boxes(of_rank[rank][:_BOXES], begin, names, account)} for rank in shown
    ]
    left_out = len(of_rank) - len(shown)
    # `us` is what `ranks.js` divides by: never 0.
    return {
        "role": role, "axis": axis, "step": step, "us": max((end - begin) / 1e3, 1.0), "names": names, "rows": rows,
        "said": _said(name, account, (end - begin) / 1e9, left_out),
    }  # fmt: skip


def _shown(of_rank: Mapping[int, Sequence[Span]], front: set[int]) -> list[int]:
    if len(of_rank) <= _ROWS:
        return sorted(of_rank)
    longest = sorted(of_rank, key=lambda rank: -sum(span.end_ns - span.start_ns for span in of_rank[rank]))
    # Those at the front first: without them the step cannot be understood.
    return sorted([*front, *(rank for rank in longest if rank not in front)][:_ROWS])


def _boxes(spans: Sequence[Span], begin: int, names: Sequence[str], account: StepAccount) -> list[list[float | int]]:
    boxes: list[list[float | int]] = []
    until: list[int] = []
    for span in spans:
        # The timers that are open when this one begins.
        until = [end for end in until if end > span.start_ns]
        at, length = (span.start_ns - begin) / 1e3, (span.end_ns - span.start_ns) / 1e3
        is_front = span.name != STEP and account.has(span)
        # Name, begin and length in µs, how many timers are around it, and whether it is framed: `ranks.js` draws it.
        boxes.append([names.index(span.name), round(at, 1), round(length, 1), len(until), int(is_front)])
        until.append(span.end_ns)
    return boxes


def _said(name: StepName, account: StepAccount, step_s: float, left_out: int) -> str:
    role, axis, step = name
    parts = [f"{role}, {axis} {step}: {seconds(step_s)}."]
    entries = sorted((entry for entry in account.phases if entry.seconds > 0), key=lambda entry: -entry.seconds)
    if entries:
        # Not the time from first to last span: what is exposed adds up to the slowest rank's step.
        whole = seconds(sum(entry.seconds for entry in entries))
        parts.append(f"The slowest rank's step, {whole}, is {_listed(entries)}; {_FRAMED[account.is_path]}")
    if left_out:
        parts.append(f"{left_out:,} ranks are not drawn.")
    return " ".join(parts)


def _listed(entries: Sequence[Exposed]) -> str:
    """Return phases that add up to the step, the longest first."""
    said = [f"{entry.phase} {seconds(entry.seconds)} (rank {entry.rank})" for entry in entries[:_NAMED]]
    rest = sum(entry.seconds for entry in entries[_NAMED:])
    return " + ".join([*said, *([f"{seconds(rest)} of others"] if rest > 0 else [])])
