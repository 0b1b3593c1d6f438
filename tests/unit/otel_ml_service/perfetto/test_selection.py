"""What of a run belongs to the steps that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from otel_ml_exporters.records import Record, Span, SpanLink, Table, Text
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.perfetto.selection import Found, Point, Steps, Value, gather
from otel_ml_service.stored_runs.read_spans import SpanRow
from tests.unit.otel_ml_service.perfetto.traced_runs import MS, T0, row, span


def found(spans: Sequence[Span], records: Sequence[Record], steps: Steps) -> tuple[Found, int]:
    """Return what is found, and how often the run was read."""
    reads = []

    def read() -> list[SpanRow | Record]:
        reads.append(1)
        return [*SpanLines.of(spans).rows(), *records]

    return gather(read, steps, lambda count: None), len(reads)


def names(selected: Found) -> list[str]:
    spans = selected.spans
    return sorted(one["name"] for process in spans.processes for one in spans.of(process))


def text(time_ms: float, axis: str, step: int | None) -> Text:
    return Text(9, T0 / 1e9 + time_ms / 1e3, f"at {time_ms}", axis, step, "said")


@pytest.mark.parametrize(
    ("steps", "step", "is_asked"),
    [
        (Steps("step", 2, 4), 1, False),
        (Steps("step", 2, 4), 2, True),
        (Steps("step", 2, 4), 4, True),
        (Steps("step", 2, 4), 5, False),
        (Steps("step", 2), 10**9, True),
        (Steps("step"), None, False),
        (Steps("eval"), 3, False),
    ],
)
def test_a_step_is_asked_for_where_it_is_between_the_ends(steps: Steps, step: int | None, is_asked: bool) -> None:
    assert steps.has("step", step) is is_asked


@pytest.mark.parametrize(
    ("steps", "is_all"), [(Steps("step"), True), (Steps("step", 1), False), (Steps("step", 0, 9), False)]
)
def test_the_whole_run_is_asked_for_where_no_end_is_named(steps: Steps, is_all: bool) -> None:
    assert steps.is_all is is_all


@pytest.mark.parametrize(
    ("begin", "end", "is_then"),
    [(0, 9, False), (0, 10, True), (15, 16, True), (20, 30, True), (21, 30, False), (0, 99, True)],
)
def test_what_overlaps_the_steps_is_of_their_time(begin: int, end: int, is_then: bool) -> None:
    assert Found(begin_ns=10, end_ns=20).is_then(begin, end) is is_then


def test_what_is_at_the_steps_is_taken_and_what_is_beside_them_only_if_it_was_then() -> None:
    spans = [
        span(1, "before", 100, 195), span(2, "mine", 200, 295), span(3, "after", 300, 395),
        span(4, "eval then", 290, 310, axis="eval", step=7), span(5, "eval later", 296, 310, axis="eval", step=8),
        span(6, "no step then", 150, 200, axis=None, step=None),
        span(7, "no step before", 150, 199, axis=None, step=None),
    ]  # fmt: skip
    records = [
        row(1, 1, {"loss": 1.0}), row(2, 2, {"loss": 2.0}), row(3, 3, {"loss": 3.0}),
        row(4, 7, {"eval": 4.0}, axis="eval", time=T0 / 1e9 + 0.25),
        row(5, 8, {"eval": 5.0}, axis="eval", time=T0 / 1e9 + 0.4),
        text(100, "step", 2), text(250, "eval", 7), text(400, "eval", 8), text(250, "step", 3),
    ]  # fmt: skip

    selected, reads = found(spans, records, Steps("step", 2, 2))

    assert names(selected) == ["eval then", "mine", "no step then"]
    assert {(point.name, point.step): value.value for point, value in selected.values.items()} == {
        ("loss", 2): 2.0, ("eval", 7): 4.0,
    }  # fmt: skip
    assert [one.name for one in selected.texts] == ["at 100", "at 250"]
    assert (selected.begin_ns, selected.end_ns) == (T0 + 200 * MS, T0 + 295 * MS)
    assert selected.axes == {"step": (1, 3), "eval": (7, 8)}
    assert selected.roles == {"trainer"}
    assert reads == 1
    assert not selected.is_empty


def test_what_the_steps_link_to_is_looked_for_in_the_whole_run() -> None:
    cause, other = span(1, "cause", 0, 50), span(2, "other", 0, 50)
    mine = replace(span(3, "mine", 200, 295), links=(SpanLink(cause.trace_id, cause.span_id),))

    selected, reads = found([cause, other, mine], [], Steps("step", 2, 2))

    assert names(selected) == ["cause", "mine"]
    assert reads == 2


def test_of_the_whole_run_everything_is_taken_in_one_reading() -> None:
    spans = [span(1, "first", 0, 95), span(2, "eval", 500, 510, axis="eval", step=7)]

    selected, reads = found(spans, [row(1, 1, {"loss": 1.0}), text(900, "eval", 9)], Steps("step"))

    assert names(selected) == ["eval", "first"]
    assert len(selected.texts) == len(selected.values) == reads == 1


def test_of_one_role_only_its_spans_and_values_are_taken_and_all_roles_are_known() -> None:
    spans = [span(1, "mine", 0, 95), span(2, "theirs", 0, 95, role="generator")]
    records = [
        row(1, 0, {"loss": 1.0}),
        row(2, 0, {"generator/work": 1.0}, role="generator"),
        row(3, 0, {"own": 1.0}, role=""),
    ]

    selected, _ = found(spans, records, Steps("step", role="generator"))

    assert names(selected) == ["theirs"]
    assert [point.name for point in selected.values] == ["generator/work"]
    assert selected.roles == {"trainer", "generator"}


def test_a_correction_replaces_the_value_and_neither_its_time_nor_when_the_steps_were() -> None:
    first = row(1, 2, {"loss": 1.0})
    late = row(2, 2, {"loss": 5.0}, time=T0 / 1e9 + 50.0, amendment=True)

    selected, _ = found([], [first, late], Steps("step", 2, 2))

    time_ns = round(first.time * 1e9)
    assert selected.values == {Point("loss", "step", 2, 0): Value(time_ns, 5.0)}
    assert (selected.begin_ns, selected.end_ns) == (time_ns, time_ns)


@pytest.mark.parametrize(
    ("begin", "end", "is_one"),
    [
        (1, 2, True),
        (0, 2, False),
        (1, 0, False),
        (-5, 2, False),
        (1, 2**63 - 1, True),
        (1, 2**63, False),
        (2**63, 1, False),
    ],
)
def test_a_span_whose_times_cannot_be_is_counted_and_left_out(begin: int, end: int, is_one: bool) -> None:
    [made] = SpanLines.of([span(1, "mine", 0, 95)]).rows()
    rows: list[Any] = [{**made, "start_ns": begin, "end_ns": end}]

    selected = gather(lambda: rows, Steps("step"), lambda count: None)

    assert (selected.spans.count, selected.without_time) == (int(is_one), int(not is_one))
    assert selected.is_empty is not is_one


def test_the_newest_table_of_findings_of_each_name_is_taken() -> None:
    tables = [
        Table(at, 1.0, name, "step", at, ("level",), (("warning",),))
        for at, name in enumerate(["otel_ml/findings", "samples", "generator/otel_ml/findings", "otel_ml/findings"])
    ]

    selected, _ = found([], tables, Steps("step", 2, 2))

    assert {name: table.step for name, table in selected.findings.items()} == {
        "otel_ml/findings": 3, "generator/otel_ml/findings": 2,
    }  # fmt: skip
    assert selected.is_empty


def test_how_many_spans_there_are_is_said_with_each() -> None:
    counts: list[int] = []
    rows = SpanLines.of([span(number, "mine", 0, 95) for number in range(1, 4)]).rows()

    gather(lambda: list(rows), Steps("step"), counts.append)

    assert counts == [1, 2, 3]
