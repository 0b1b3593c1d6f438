"""Which span shows a finding: that of the slow timer, or the nearest one where spans were limited."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.findings.finding import Finding

__all__ = ["is_shown", "linked", "where_shown"]


def linked(finding: Finding, axis: str, lines: Iterable[str]) -> Finding:
    """Return the finding with the span that shows it best; as it is where its rank sent none on this axis.

    Of a slow rank it is the longest span of the timer since the trouble began; else the one of the nearest step; else,
    where the timer has none at all, the longest span of another timer then. Of a silent rank it is the last one before
    the silence, of the step itself where it hangs in one.

    Args:
        finding: slow or silent.
        axis: of its steps.
        lines: spans of its rank, as stored.

    Examples:
        >>> spans = [Span("aa", f"b{step}", None, "work", 0, 5, "trainer", 1, "step", step) for step in (6, 7)]
        >>> found = linked(Finding("slow", 1, "work", "warning", 7, 9), "step", SpanLines.of(spans).lines)
        >>> found.span_id, found.span_step, is_shown(found)
        ('b7', 7, True)
    """
    kept = tuple(lines)
    wanted = f'"name":{json.dumps(finding.phase)},'
    chosen = tuple(line for line in kept if wanted in line) or kept  # most are not even read
    spans = [span for span in SpanLines(chosen) if span.axis == axis and span.step is not None]
    if finding.kind == "silent":
        spans = [span for span in spans if (span.step or 0) <= finding.since]
        best = max(spans, key=lambda span: span.end_ns, default=None)
    else:
        best = min(spans, key=lambda span: _distance(finding, span), default=None)
    if best is None:
        return finding
    shown = replace(finding, trace_id=best.trace_id, span_id=best.span_id)
    return replace(shown, span_name=best.name, span_step=best.step)


def is_shown(finding: Finding) -> bool:
    """Whether no better span can come: it has one of its timer and its steps; silent ranks send no further ones."""
    if finding.kind == "silent":
        return bool(finding.span_id)
    return finding.span_name == finding.phase and _steps_off(finding, finding.span_step or 0) == 0


def where_shown(finding: Finding) -> str:
    """Return where to look, for the end of a message; nothing where there is no span.

    Examples:
        >>> where = {"trace_id": "aa", "span_id": "b7", "span_name": "work", "span_step": 7}
        >>> where_shown(Finding("slow", 1, "work", "warning", 7, 9, **where))
        ' Span b7 of trace aa, step 7, shows it.'
    """
    if not finding.span_id:
        return ""
    which = "shows it" if is_shown(finding) else f"is the nearest one that was kept, {finding.span_name!r}"
    return f" Span {finding.span_id} of trace {finding.trace_id}, step {finding.span_step}, {which}."


def _distance(finding: Finding, span: Span) -> tuple[int, int, int]:
    """Return how far a span is from showing the finding; the smallest does best."""
    # The phase of a timer with attributes goes on with these.
    is_other = span.name != finding.phase
    is_strange = is_other and not finding.phase.startswith(f"{span.name}/")
    # 0 of its own timer, 1 of one whose attributes the phase names, 2 of another; last, the longest span of those.
    return is_other + is_strange, _steps_off(finding, span.step or 0), span.start_ns - span.end_ns


def _steps_off(finding: Finding, step: int) -> int:
    """How many steps lie between; of steps that were not looked at yet nobody knows whether the trouble goes on."""
    return max(finding.since - step, step - finding.last, 0)
