"""`spans.jsonl`, read while it grows."""

from __future__ import annotations

import json
from pathlib import Path

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.stored_runs.follow_spans import SpanFollower, newest_spans


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


def test_a_file_that_was_cut_or_replaced_is_not_taken_for_the_one_that_was_read(tmp_path: Path) -> None:
    file, other = tmp_path / "spans.jsonl", tmp_path / "other"
    file.write_text(line(0) + line(1))
    follower = SpanFollower(file)
    before = follower.is_of_another_file
    follower.new_spans()
    as_it_was = follower.is_of_another_file
    file.write_text(line(0))
    cut = follower.is_of_another_file
    other.write_text("".join(map(line, range(9))))
    other.replace(file)

    assert (before, as_it_was, cut, follower.is_of_another_file) == (False, False, True, True)


def test_what_is_no_span_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text(line(0) + "no JSON\n[]\n" + line(1, name=None) + line(2, start_ns="soon") + line(3))

    assert [span.step for span in newest_spans(file)] == [0, 3]


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
