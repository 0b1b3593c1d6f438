"""Which span shows a finding best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.findings.evidence_span import is_shown, linked, where_shown
from otel_ml_service.findings.finding import Finding

SLOW = Finding("slow", 1, "work", "warning", 10, 12)
SILENT = Finding("silent", 1, "", "critical", 10, 12)


def span(name: str, step: int | None, lasts: int = 5, axis: str = "step", start: int = 0) -> Span:
    return Span("aa", f"{name}-{step}-{lasts}", None, name, start, start + lasts, "trainer", 1, axis, step)


def shown(finding: Finding, *spans: Span) -> str:
    return linked(finding, "step", SpanLines.of(spans).lines).span_id


@pytest.mark.parametrize(
    ("spans", "best"),
    [
        ([span("work", 10, 5), span("work", 12, 7), span("work", 11, 6)], "work-12-7"),
        ([span("work", 8, 99), span("work", 9, 5), span("work", 15, 99)], "work-9-5"),
        ([span("work", 8, 99), span("work", 13, 5)], "work-13-5"),
        ([span("other", 10, 99), span("work", 5, 1)], "work-5-1"),
        ([span("other", 10, 9), span("another", 11, 5)], "other-10-9"),
        ([span("work", 11, 5, axis="rollout"), span("work", None, 5), span("work", 3, 1)], "work-3-1"),
        ([span("work", 11, 5, axis="rollout")], ""),
        ([], ""),
    ],
)
def test_of_a_slow_rank_it_is_the_longest_one_of_the_timer_nearest_to_its_steps(spans: list[Span], best: str) -> None:
    assert shown(SLOW, *spans) == best


def test_a_timer_with_attributes_is_nearer_than_another() -> None:
    slow = replace(SLOW, phase="work/bucket=3")

    assert shown(slow, span("other", 10, 99), span("work", 5, 1)) == "work-5-1"


@pytest.mark.parametrize(
    ("spans", "best"),
    [
        ([span("a", 8, 5, start=10), span("b", 10, 1, start=20), span("c", 11, 1, start=90)], "b-10-1"),
        ([span("c", 11, 1)], ""),
    ],
)
def test_of_a_silent_rank_it_is_the_last_one_before_the_silence(spans: list[Span], best: str) -> None:
    assert shown(SILENT, *spans) == best


def test_it_is_said_where_to_look_and_whether_that_is_only_near() -> None:
    own = linked(SLOW, "step", SpanLines.of([span("work", 11)]).lines)
    near = linked(SLOW, "step", SpanLines.of([span("work", 13)]).lines)
    silent = linked(SILENT, "step", SpanLines.of([span("a", 9)]).lines)

    assert [is_shown(one) for one in (own, near, silent, SLOW, SILENT)] == [True, False, True, False, False]
    assert where_shown(own) == " Span work-11-5 of trace aa, step 11, shows it."
    assert where_shown(near) == " Span work-13-5 of trace aa, step 13, is the nearest one that was kept, 'work'."
    assert where_shown(SLOW) == ""
    assert (own.span_name, own.span_step, own.trace_id) == ("work", 11, "aa")
