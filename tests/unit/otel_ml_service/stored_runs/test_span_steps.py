"""`spans.jsonl`, searched for steps: each is found, whole, and without reading all of the file again."""

from __future__ import annotations

import json
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.stored_runs import span_steps
from otel_ml_service.stored_runs.span_steps import SpanSteps


def line(step: int | None, rank: int = 0, role: str = "trainer", axis: str | None = "step", **more: object) -> str:
    span = {"seq": 1, "trace_id": "0" * 32, "span_id": "0" * 16, "parent_id": None, "name": "forward", "start_ns": 1}
    place = {"end_ns": 2, "role": role, "rank": rank, "axis": None if step is None else axis, "step": step}
    return json.dumps({**span, **place, "attributes": {}, "status": "ok", **more}, separators=(",", ":")) + "\n"


def ranks_of(spans: SpanSteps, step: int, role: str = "trainer", axis: str = "step") -> list[int]:
    return [span.rank for span in spans.of(role, axis, step)]


def test_a_step_is_found_wherever_it_is_and_no_other_one(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    lines = [line(step, rank) for step in (1, 11, 111) for rank in range(2)]
    file.write_text("".join([*lines, line(1, role="generator"), line(1, axis="eval"), line(None, 5), line(-1, 6)]))
    spans = SpanSteps(file)

    assert [(span.role, span.rank, span.step) for span in spans.of("trainer", "step", 1)] == [
        ("trainer", 0, 1),
        ("trainer", 1, 1),
    ]
    assert ranks_of(spans, -1) == [6]
    assert ranks_of(spans, 2) == []
    assert ranks_of(SpanSteps(tmp_path / "none"), 1) == []


@pytest.mark.parametrize("block", [1, 7, 200, 1000])
def test_a_step_is_found_where_blocks_end_within_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(span_steps, "_BLOCK", block)  # of a megabyte: its end is in none of so few lines
    file = tmp_path / "spans.jsonl"
    file.write_text(line(7) + line(1, 1) + line(2) + line(1, 2) + line(1, 3) + line(7) + line(1, 4).rstrip("\n"))

    assert ranks_of(SpanSteps(file), 1) == [1, 2, 3, 4]


def test_what_comes_later_is_found_and_a_line_that_is_torn_once_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text(line(1, 1) + line(2, 2)[:150])
    spans = SpanSteps(file)

    assert (ranks_of(spans, 1), ranks_of(spans, 2)) == ([1], [])
    with file.open("a") as more:
        more.write(line(2, 2)[150:] + line(1, 3))
    assert (ranks_of(spans, 1), ranks_of(spans, 2)) == ([1, 3], [2])


def test_of_a_file_that_was_replaced_or_cut_nothing_is_remembered(tmp_path: Path) -> None:
    file, other = tmp_path / "spans.jsonl", tmp_path / "other"
    file.write_text(line(1, 1) + line(2, 2))
    spans = SpanSteps(file)
    assert ranks_of(spans, 1) == [1]

    file.write_text(line(2, 3))
    assert (ranks_of(spans, 1), ranks_of(spans, 2)) == ([], [3])
    other.write_text(line(5, 5) * 9)
    other.replace(file)
    assert (ranks_of(spans, 2), ranks_of(spans, 5)) == ([], [5] * 9)


def read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().splitlines()[0].removeprefix("rchar: "))


def test_the_second_step_is_found_without_reading_the_others(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(line(step, rank) for step in range(10_000) for rank in range(4)))
    spans = SpanSteps(file)
    assert ranks_of(spans, 5) == [0, 1, 2, 3]

    before = read_bytes()
    assert ranks_of(spans, 9_000) == [0, 1, 2, 3]
    assert read_bytes() - before < file.stat().st_size / 4


LINES = st.tuples(
    st.integers(-2, 400) | st.sampled_from([2**53, 2**63 - 1]), st.sampled_from(["trainer", 'a"step":3']),
    st.sampled_from(["step", "epoch"]),
)  # fmt: skip


@given(
    rows=st.lists(LINES, max_size=40),
    parts=st.lists(st.integers(1, 900), min_size=1, max_size=5),
    block=st.integers(1, 2_000),
)
@settings(max_examples=100, deadline=None)
def test_whatever_the_order_and_however_the_file_grows_each_span_of_a_step_is_found_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, str, str]], parts: list[int], block: int
) -> None:
    file = tmp_path_factory.mktemp("run") / "spans.jsonl"
    lines = [line(step, rank, role, axis, attributes={"step": rank}) for rank, (step, role, axis) in enumerate(rows)]
    text = "".join(lines)
    asked = {*rows, (3, "trainer", "step")}
    spans = SpanSteps(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_steps, "_BLOCK", block)  # as above
        ends = [sum(parts[: number + 1]) for number in range(len(parts))]
        for end in [*(end for end in ends if end < len(text)), len(text)]:
            file.write_bytes(text[:end].encode())
            # Without its line end the last one is there, too: it is whole JSON.
            there = sum(1 for stop in accumulate(map(len, lines)) if stop - 1 <= end)
            for step, role, axis in asked:
                expected = [rank for rank, row in enumerate(rows[:there]) if row == (step, role, axis)]
                assert ranks_of(spans, step, role, axis) == expected
