"""A trace as Perfetto reads it says what `spans.jsonl` and `metrics.jsonl` say."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import Record, Span, SpanLink, Table, Text
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.cli import main
from otel_ml_service.perfetto.selection import Steps, gather
from otel_ml_service.perfetto.trace_file import write_trace
from otel_ml_service.storage.outbox import Outbox
from tests.perfetto_trace import read_trace
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM
from tests.unit.otel_ml_service.perfetto.traced_runs import (
    MS,
    T0,
    as_slices,
    batches,
    of_trace,
    row,
    span,
    steps_of,
    stored_spans,
    traced,
)
from tests.waiting import eventually


@pytest.mark.parametrize(("asked", "first", "last"), [("3-5", 3, 5), ("4", 4, 4), (None, 0, 9)])
def test_slices_are_the_spans_of_these_steps(tmp_path: Path, asked: str | None, first: int, last: int) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=3, steps=10)))

    trace = traced(run, *(["--steps", asked] if asked else []))

    expected = [one for one in stored_spans(run) if first <= one["step"] <= last]
    assert of_trace(trace) == as_slices(expected)
    assert [one.notes["step"] for one in trace.slices if one.name == "step"] == sorted(
        one["step"] for one in expected if one["name"] == "step"
    )
    parents = {one["span_id"]: one["parent_id"] for one in expected}
    assert {one.notes["span_id"]: one.inside for one in trace.slices} == parents


def test_ranks_are_in_the_order_of_their_numbers_under_their_role(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=12, steps=2)))

    order = {path: rank for path, rank in traced(run).order.items() if path[0] == "trainer"}

    ranks = sorted((path for path in order if len(path) == 2), key=lambda path: order[path])
    assert [path[1] for path in ranks] == [f"rank {rank}" for rank in range(12)]


def test_what_another_thread_does_is_beside_not_inside(tmp_path: Path) -> None:
    spans = [
        span(1, "step", 0, 90),
        span(2, "forward", 5, 40, parent=1),
        span(3, "save", 10, 30),  # no parent: within "forward" by time only
        span(4, "load", 20, 95, attributes={"thread.name": "loader"}),
        span(5, "late", 60, 120, parent=1),  # goes on when its parent is over
    ]
    run = write_run(tmp_path, "01abc", batches(spans))

    trace = traced(run)

    assert {one.name: (one.track[2:], one.inside) for one in trace.slices} == {
        "step": ((), None),
        "forward": ((), f"{1:016x}"),
        "save": (("thread 2",), None),
        "load": (("loader",), None),
        "late": (("thread 2",), None),
    }
    assert of_trace(trace) == as_slices(stored_spans(run))


def test_spans_of_two_traces_may_have_the_same_id(tmp_path: Path) -> None:
    spans = [
        span(1, "step", 0, 90),
        span(2, "forward", 5, 40, parent=1),
        replace(span(1, "other", 0, 80, rank=1), trace_id=f"{2:032x}"),
        replace(span(2, "inside other", 5, 40, parent=1, rank=1), trace_id=f"{2:032x}"),
    ]
    run = write_run(tmp_path, "01abc", batches(spans))

    trace = traced(run)

    assert trace.flows == set()
    assert of_trace(trace) == as_slices(stored_spans(run))


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 2), st.none() | st.integers(1, 12)),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_overlaps_each_slice_has_the_times_of_its_span(
    tmp_path_factory: pytest.TempPathFactory, given_spans: list[tuple[int, int, int, int | None]]
) -> None:
    spans = [
        span(number, f"s{number}", begin, begin + length, parent=parent, rank=rank, step=0)
        for number, (begin, length, rank, parent) in enumerate(given_spans, 1)
    ]
    file = tmp_path_factory.mktemp("overlaps") / "t.pftrace"
    lines = [{name: getattr(one, name) for name in Span.__dataclass_fields__} for one in spans]

    found = gather(lambda: lines, Steps("step"), lambda _: None)
    with closing(found.spans), file.open("wb") as content:
        write_trace(found, Steps("step"), content)

    assert of_trace(read_trace(file)) == as_slices(lines)


@pytest.mark.parametrize(
    ("beside", "spans", "times"),
    [
        ([], 18, 1),
        ([span(900, "generate", 435, 445, role="generator", axis="rollout", step=7)], 19, 1),
        ([span(901, "without a step", 435, 445, axis=None, step=None)], 19, 1),
        ([span(902, "linked", 435, 445, links=(SpanLink(f"{1:032x}", f"{1:016x}"),))], 20, 2),  # to one of step 0
        ([Text(1, T0 / 1e9, "note", "time", None, "of no step")], 18, 1),
        ([span(903, "generate", 35, 45, role="generator", axis="rollout", step=7)] * 20_001, 18, 2),
    ],
)
def test_a_run_is_read_again_only_where_steps_link_to_something_or_much_was_done_beside_them(
    beside: list[Span | Text], spans: int, times: int
) -> None:
    every = [*steps_of(ranks=2, steps=10), *beside]
    read = list[int]()

    def items() -> Iterator[dict[str, Any] | Text]:
        read.append(len(read))
        for one in every:
            yield one if isinstance(one, Text) else SpanLines.of([one]).rows()[0]

    with closing(gather(items, Steps("step", 3, 5), lambda _: None).spans) as found:
        assert found.count == spans

    assert len(read) == times


def test_counters_are_the_published_metrics_with_the_time_of_their_step(tmp_path: Path) -> None:
    values = {"loss": 0.1, "time/step": 2.5e-3, "otel_ml/attempt": 0.0}
    records: list[Record] = [row(1 + step, step, {**values, "loss": 1 / (1 + step)}) for step in range(10)]
    records += [row(11, 4, {"loss": 77.0}, amendment=True, time=T0 / 1e9 + 5000)]
    records += [row(12, 5, {"bad": math.nan, "worse": math.inf})]
    run = write_run(tmp_path, "01abc", records)

    trace = traced(run, "--steps", "3-6")

    expected = {3: 0.25, 4: 77.0, 5: 1 / 6, 6: 1 / 7}
    assert trace.counters[("metrics", "loss")] == [
        (round((T0 / 1e9 + step / 10 + 0.0625) * 1e9), value) for step, value in expected.items()
    ]
    assert [value for _, value in trace.counters[("metrics", "time/step")]] == [2.5e-3] * 4
    assert set(trace.counters) == {
        ("metrics", "loss"),
        ("metrics", "time/step"),
        ("metrics of otel_ml", "otel_ml/attempt"),
    }


def test_what_other_roles_did_at_that_time_is_there_and_one_role_can_be_chosen(tmp_path: Path) -> None:
    generator = {"role": "generator", "axis": "rollout"}
    spans = [
        *steps_of(ranks=1, steps=10),
        span(100, "before", 0, 299, step=0, **generator),
        span(101, "during", 250, 350, step=1, **generator),
        span(102, "after", 500, 600, step=2, **generator),
        span(103, "no step", 320, 330, axis=None, step=None),
    ]
    records = batches(spans)
    records += [row(100 + n, n, {"generator/reward": float(n)}, role="generator", axis="rollout") for n in range(10)]
    run = write_run(tmp_path, "01abc", records)

    every = traced(run, "--steps", "3")
    of_generator = traced(run, "--steps", "3", "--role", "generator")

    assert {one.name for one in every.slices} == {"step", "forward", "backward", "during", "no step"}
    assert {one.name for one in of_generator.slices} == {"during"}
    assert [value for _, value in every.counters[("metrics", "generator/reward (rollout)")]] == [3.0]


def test_findings_and_texts_are_marks(tmp_path: Path) -> None:
    columns = ("level", "kind", "rank", "phase", "since", "until")
    rows = (("critical", "slow", 2, "forward", 3, None), ("warning", "slow", 1, "backward", 0, 1))
    records = batches(steps_of(ranks=3, steps=10))
    records += [
        Table(100, T0 / 1e9 + 0.5, "otel_ml/findings", "step", 5, columns, rows),
        Text(101, T0 / 1e9 + 0.41, "sample", "step", 4, "an answer"),
        Text(102, T0 / 1e9 + 0.91, "sample", "step", 9, "another answer"),
    ]
    run = write_run(tmp_path, "01abc", records)

    marks = {one.name: one for one in traced(run, "--steps", "4-5").marks}

    assert set(marks) == {"rank 2 slow in forward", "sample"}
    assert marks["rank 2 slow in forward"].begin_ns == T0 + 400 * MS
    assert marks["rank 2 slow in forward"].notes["level"] == "critical"
    assert marks["sample"].notes["text"] == "an answer"


def test_attributes_and_a_failure_are_notes(tmp_path: Path) -> None:
    given_attributes = {
        "batch": 7,
        "least": -(2**63),
        "most": 2**63 - 1,
        "ratio": 0.5,
        "ok": True,
        "who": "x<y",
        "sizes": [1, 2],
        "nested": {"a": {"b": -1}},
        "inf": math.inf,
    }
    run = write_run(tmp_path, "01abc", batches([span(1, "step", 0, 9, attributes=given_attributes, status="error")]))

    [one] = traced(run).slices

    assert one.notes == {
        "step": 0,
        **given_attributes,
        "status": "error",
        "trace_id": f"{1:032x}",
        "span_id": f"{1:016x}",
    }


def test_a_run_that_goes_on_has_what_is_written_and_a_torn_line_is_not_read(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=2, steps=4)))
    with (run.path / "spans.jsonl").open("a") as file:
        file.write('{"seq":99,"trace_id":"00')

    with closing(Outbox(run.database)):
        trace = traced(run)

    assert len(trace.slices) == 4 * 2 * 3


def test_spans_that_no_exporter_wrote_are_in_the_file_of_the_service(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=2, steps=4)))
    whole = (run.path / "spans.jsonl").read_bytes()
    (run.path / "spans.jsonl").write_bytes(whole[: whole.index(b'{"seq":3')])  # killed before it had written the rest

    assert len(traced(run).slices) == 4 * 2 * 3


def test_a_run_without_spans_has_its_metrics_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5))

    trace = traced(run)

    assert len(trace.counters[("metrics", "loss")]) == 5
    assert not trace.slices
    assert "there are no spans of these steps, only metrics" in capsys.readouterr().err


@pytest.mark.parametrize("asked", ["", "x", "5-", "-5", "1-2-3", "1.5"])
def test_steps_that_are_none_are_a_wrong_use_that_says_what_is_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    write_run(tmp_path, "01abc", batches(steps_of(ranks=1, steps=2)))

    assert main(["trace", "01abc", f"--steps={asked}"]) == 2
    assert "Expected one, as in 5, or the first and the last, as in 48-52." in capsys.readouterr().err


def test_steps_and_roles_that_there_are_not_are_an_error_that_says_which_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=1, steps=20)))

    assert main(["trace", "01abc", "--steps", "48-52"]) == 1
    assert "has nothing at 48-52 of the axis 'step'. It has the steps 0-19 of 'step'." in capsys.readouterr().err
    assert main(["trace", "01abc", "--role", "generator"]) == 1
    assert "has no role 'generator'. Its roles are: trainer." in capsys.readouterr().err
    assert main(["trace", "01abc", "--axis", "rollout"]) == 1
    assert "has no steps of the axis 'rollout'. It has the steps 0-19 of 'step'." in capsys.readouterr().err
    assert not list(run.path.glob("*.perfetto-trace*"))


def test_the_file_is_in_the_runs_folder_and_the_command_says_where_and_what_opens_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=1, steps=9)))

    assert main(["trace", "latest", "--steps", "5-7"]) == 0

    said = capsys.readouterr()
    assert said.out.strip() == str(run.path / "trace-5-7.perfetto-trace")
    assert "9 spans" in said.err
    assert "https://ui.perfetto.dev" in said.err
    assert len(read_trace(run.path / "trace-5-7.perfetto-trace").slices) == 9


def test_a_place_that_cannot_be_written_is_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, "01abc", batches(steps_of(ranks=1, steps=2)))
    (tmp_path / "file").write_text("")

    assert main(["trace", "-o", str(tmp_path / "file" / "t")]) == 1
    assert "The trace cannot be written to" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trace_that_is_interrupted_leaves_no_part_of_it(tmp_path: Path, number: signal.Signals) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=12, steps=100)))
    # More than a pipe takes at once: the command is in the middle as long as nobody reads.
    command = ["sh", "-c", 'mkfifo "t.pftrace.$$.part" && exec "$@"', "sh"]
    command += [*PROGRAM, "trace", str(run.path), "-o", "t.pftrace"]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        part = tmp_path / f"t.pftrace.{process.pid}.part"
        eventually(part.exists)
        reader = os.open(part, os.O_RDONLY)
        os.read(reader, 1)
        process.send_signal(number)
        process.wait()
        os.close(reader)

    assert process.returncode == 128 + number
    assert list(tmp_path.glob("t.pftrace*")) == []


def test_the_command_says_as_json_what_is_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, "01abc", batches(steps_of(ranks=1, steps=9)))

    assert main(["trace", "latest", "--steps", "5-7", "--json"]) == 0

    file = run.path / "trace-5-7.perfetto-trace"
    assert json.loads(capsys.readouterr().out) == {
        "file": str(file), "bytes": file.stat().st_size, "id": "01abc", "axis": "step", "role": None,
        "spans": 9, "values": 0, "arrows": 0, "arrows_left_out": 0, "clocks_moved": 0, "spans_left_out": 0,
    }  # fmt: skip
