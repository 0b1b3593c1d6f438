"""What an agent is told of spans: of all that the run has, wherever they are kept."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, RunStatus, Span, SpanBatch
from otel_ml_service.cli.mcp_tools import RunTools
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run


def recorded(steps: int) -> list[Record]:
    every: list[Record] = [
        SpanBatch(step + 1, (Span("1" * 32, f"{step + 1:016x}", None, "forward", step * 10**9, (step + 1) * 10**9,
                                  "trainer", 0, "step", step),))
        for step in range(steps)
    ]  # fmt: skip
    return [*every, RunStatus(steps + 1, 2000.0, "finished")]


def forget_the_oldest(run: RunFolder, most: int) -> None:
    """Remove what a service removes where its files exceed the disk limit; the exporter `jsonl` has it."""
    with closing(sqlite3.connect(run.database)) as connection, connection:
        connection.execute("DELETE FROM records WHERE seq <= ?", (most,))


@pytest.mark.parametrize("forgotten", [0, 3, 5])
def test_each_span_is_told_once_also_of_what_the_disk_limit_took(tmp_path: Path, forgotten: int) -> None:
    run = write_run(tmp_path, "01abc", recorded(5))
    forget_the_oldest(run, forgotten)

    found = RunTools(tmp_path).spans("01abc")

    assert [(one["step"], one["seconds"]) for one in found] == [(step, 1.0) for step in range(5)]
    assert [one["step"] for one in RunTools(tmp_path).spans("01abc", step=1, name="f*", rank=0)] == [1]


def test_spans_are_told_where_only_the_service_has_them(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", recorded(2), exporters=[])

    assert [one["name"] for one in RunTools(tmp_path).spans("01abc")] == ["forward", "forward"]


@pytest.mark.parametrize(
    ("most", "steps"), [(-1, []), (0, []), (1, [0]), (3, [0, 4, 8]), (10, [*range(10)]), (11, [*range(10)])]
)
def test_of_a_series_no_more_values_are_told_than_asked_for(tmp_path: Path, most: int, steps: list[int]) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=10))

    [found] = RunTools(tmp_path).series("01abc", ["loss"], most=most)

    assert found["steps"] == steps
    assert len(found["values"]) == len(steps)
    assert found["of"] == 10


def test_attributes_have_numbers_that_json_has(tmp_path: Path) -> None:
    odd = Span("1" * 32, "2" * 16, None, "forward", 0, 10**9, "trainer", 0, "step", 1, {"norm": math.nan, "size": 3})
    write_run(tmp_path, "01abc", [SpanBatch(1, (odd,))])

    [found] = RunTools(tmp_path).spans("01abc")

    assert found["attributes"] == {"norm": "nan", "size": 3}


@pytest.mark.parametrize(("most", "told"), [(-1, 0), (0, 0), (1, 1), (5, 5), (6, 5)])
def test_no_more_spans_are_told_than_asked_for(tmp_path: Path, most: int, told: int) -> None:
    write_run(tmp_path, "01abc", recorded(5))

    assert len(RunTools(tmp_path).spans("01abc", most=most)) == told


def test_an_agent_is_answered_why_and_how_two_runs_differ(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=10))
    write_run(tmp_path, "02abc", digits_records(steps=12))
    tools = RunTools(tmp_path)

    why, diff = tools.why("01abc", first=3), tools.diff("01abc", "02abc")

    assert (why["first"], why["last"]) == (3, 3)
    assert why["verdict"] in {"caused", "coincided", "cannot tell"}
    assert {"01abc", "02abc"} <= set(str(diff).replace("'", " ").split())
