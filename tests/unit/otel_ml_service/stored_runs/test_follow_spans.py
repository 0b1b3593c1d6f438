"""`spans.jsonl`, read while it grows, and searched for one step."""

from __future__ import annotations

import json
from pathlib import Path

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.stored_runs.follow_spans import SpanFollower, newest_spans, spans_of_step


def line(step: int, rank: int = 0, **changed: object) -> str:
    span = {"seq": 1, "trace_id": "0" * 32, "span_id": "0" * 16, "parent_id": None, "name": "forward", "start_ns": step}
    more = {"end_ns": step + 1, "role": "trainer", "rank": rank, "axis": "step", "step": step}
    return json.dumps({**span, **more, **changed}, separators=(",", ":")) + "\n"


def test_each_span_is_handed_out_once_and_half_a_line_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    follower = SpanFollower(file)
    whole = line(1)

    before = follower.new_spans()
    file.write_text(line(0) + whole[:20])
    first = follower.new_spans()
    with file.open("a") as more:
        more.write(whole[20:])
    second = follower.new_spans()

    assert before == []
    assert [span.step for span in first] == [0]
    assert [span.step for span in second] == [1]
    assert follower.new_spans() == []


def test_what_is_no_span_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text(line(0) + "no JSON\n[]\n" + line(1, name=None) + line(2, start_ns="soon") + line(3))

    assert [span.step for span in newest_spans(file)] == [0, 3]


def test_a_step_is_found_wherever_it_is_and_no_other_one(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(line(step, rank) for step in (1, 11, 111) for rank in range(2)) + line(1, role="generator"))

    found = list(spans_of_step(file, "trainer", "step", 1))

    assert [(span.role, span.rank, span.step) for span in found] == [("trainer", 0, 1), ("trainer", 1, 1)]
    assert list(spans_of_step(tmp_path / "none", "trainer", "step", 1)) == []


def test_to_go_through_a_batch_reads_its_text_once() -> None:
    class Counted(SpanLines):
        __slots__ = ()
        reads = 0

        def written(self, begin: str, end: str = "") -> str:
            Counted.reads += 1
            return super().written(begin, end)

    spans = [
        Span("0" * 32, "0" * 16, None, "forward", step, step + 1, "trainer", 0, "step", step) for step in range(50)
    ]
    batch = Counted(
        [json.dumps({name: getattr(span, name) for name in Span.__slots__}, default=dict) for span in spans]
    )

    assert list(batch) == spans
    assert Counted.reads == 1
