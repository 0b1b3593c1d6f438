"""Spans of a stretch of time are found in a file that is in the order in which they arrived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import pytest

from otel_ml_service.stored_runs import span_blocks
from otel_ml_service.stored_runs.follow_spans import span_in
from otel_ml_service.stored_runs.span_blocks import SpanBlocks

SECOND = 1_000_000_000


def line(step: int, rank: int = 0, *, ends: float, lasts: float = 1.0, name: str = "forward") -> str:
    times = {"start_ns": int((ends - lasts) * SECOND), "end_ns": int(ends * SECOND)}
    place = {"role": "trainer", "rank": rank, "axis": "step", "step": step, "attributes": {"end_ns": 1}}
    span = {"seq": 1, "trace_id": "0" * 32, "span_id": "0" * 16, "parent_id": None, "name": name, **times, **place}
    return json.dumps(span, separators=(",", ":")) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Four ranks, of which one sends half a minute late, one span that lasts for long, and what is not a span."""
    file = tmp_path / "spans.jsonl"
    ends = [second + (30 if second % 7 == 0 else 0) for second in range(2_000)]
    rows = [line(end, rank=end % 4, ends=end, name='"start_ns":1,"end_ns":2' if end % 5 else "forward") for end in ends]
    rows.insert(1_000, line(1_000, ends=1_000, lasts=20) + "no JSON\n" + "{\n")
    file.write_text("".join(rows) + '{"seq":1,"half a li')
    return file


@pytest.mark.parametrize("block", [1, 100, 1_000, 4 * 2**20])
@pytest.mark.parametrize(
    ("begin", "end"), [(0, 10), (900, 910), (995, 995.5), (985, 986), (1_999, 5_000), (3_000, 4_000)]
)
def test_what_overlaps_a_stretch_of_time_is_found_wherever_blocks_end(
    file: Path, monkeypatch: pytest.MonkeyPatch, block: int, begin: float, end: float
) -> None:
    monkeypatch.setattr(span_blocks, "_BLOCK", block)  # of 4 MiB, whose end is in none of so few lines
    monkeypatch.setattr(span_blocks, "_MOST", 4 * 2**20 // block)  # as many bytes as before
    begin_ns, end_ns = int(begin * SECOND), int(end * SECOND)

    found = SpanBlocks(file).between(begin_ns, end_ns)

    every = filter(None, map(span_in, file.read_bytes().splitlines()))
    assert list(found) == [one for one in every if one.start_ns <= end_ns and one.end_ns >= begin_ns]


def test_of_these_only_lines_that_hold_what_is_wanted_are_spans(file: Path) -> None:
    found = list(SpanBlocks(file).between(100 * SECOND, 200 * SECOND, b'"rank":1', b'"name":"forward"'))

    assert {(span.rank, span.name) for span in found} == {(1, "forward")}
    assert {145, 165} <= {span.step for span in found}


def test_a_file_that_has_grown_and_one_that_is_not_there(file: Path) -> None:
    blocks = SpanBlocks(file)
    assert list(blocks.between(3_000 * SECOND, 4_000 * SECOND)) == []

    with file.open("a") as more:
        more.write("\n" + line(3_500, ends=3_500))

    assert [span.step for span in blocks.between(3_000 * SECOND, 4_000 * SECOND)] == [3_500]
    assert list(SpanBlocks(file.with_name("none")).between(0, 4_000 * SECOND)) == []


def test_a_block_is_read_once_for_all_stretches_of_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    whole = span_blocks._read
    monkeypatch.setattr(span_blocks, "_BLOCK", 10_000)  # of so few lines there are several blocks then

    def noted(file: IO[bytes], number: int) -> object:
        read.append(number)
        return whole(file, number)

    monkeypatch.setattr(span_blocks, "_read", noted)  # nothing else tells how often a block is read
    blocks = SpanBlocks(file)

    for second in range(100, 1_500, 5):
        assert list(blocks.between(second * SECOND, (second + 1) * SECOND))

    assert len(read) == len(set(read)) > 10
