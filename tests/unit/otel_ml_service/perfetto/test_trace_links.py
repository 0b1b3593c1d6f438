"""What led to what is an arrow in a trace, and nothing is drawn before its cause where clocks of hosts differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.perfetto.traced_runs import (
    MS,
    T0,
    batches,
    span,
    stored_spans,
    traced,
)


def with_links(run: RunFolder, links: dict[int, list[int]]) -> None:
    """Add links, as a newer writer has them, to spans of `spans.jsonl`."""
    lines = stored_spans(run)
    for line in lines:
        if targets := links.get(int(line["span_id"], 16)):
            line["links"] = [
                {"trace_id": f"{1:032x}", "span_id": f"{number:016x}", "attributes": {}} for number in targets
            ]
    (run.path / "spans.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.feature("F22", "better", "what all ranks did then, with arrows from causes to effects, in Perfetto")
def test_links_and_parents_in_other_processes_are_arrows(tmp_path: Path) -> None:
    generator = {"role": "generator", "axis": "rollout"}
    spans = [
        span(1, "rollout", 0, 40, rank=3, step=7, **generator),
        span(2, "sample", 1, 20, parent=1, rank=3, step=7, **generator),
        span(10, "step", 500, 590),
        span(11, "forward", 501, 520, parent=10),
        span(12, "served", 510, 515, parent=11, rank=1),
        span(13, "lost", 505, 506, parent=999),
    ]
    run = write_run(tmp_path, "01abc", batches(spans))
    with_links(run, {10: [1, 2], 11: [998]})

    trace = traced(run, "--steps", "5")

    names = {one.notes["span_id"]: one.name for one in trace.slices}
    assert {(names[cause], names[effect]) for cause, effect in trace.flows} == {
        ("rollout", "step"),
        ("sample", "step"),
        ("forward", "served"),
    }
    assert {one.track[:2] for one in trace.slices if one.name == "rollout"} == {("generator", "rank 3")}


def test_an_effect_before_its_cause_has_no_arrow_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "01abc", batches([span(1, "early", 0, 10), span(2, "cause", 5, 10, rank=1)]))
    with_links(run, {1: [2]})

    trace = traced(run)

    assert trace.flows == set()
    assert "without 1 arrow to what did not begin after its cause" in capsys.readouterr().err


def test_of_a_host_whose_clock_is_ahead_spans_are_drawn_after_their_cause_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hour = 3_600_000
    generator = {"role": "generator", "axis": "rollout", "step": 0}
    spans = [span(1, "rollout", hour, hour + 40, **generator), span(2, "train", 100, 190)]
    run = write_run(tmp_path, "01abc", batches(spans))
    with_links(run, {2: [1]})

    trace = traced(run)

    [rollout] = [one for one in trace.slices if one.name == "rollout"]
    [train] = [one for one in trace.slices if one.name == "train"]
    assert rollout.begin_ns <= train.end_ns
    assert (train.begin_ns, rollout.end_ns - rollout.begin_ns) == (T0 + 100 * MS, 40 * MS)
    assert "the clock of 1 rank was moved, by up to 1 h" in capsys.readouterr().err


def test_clocks_that_no_shift_fits_are_left_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"rank": 1}
    spans = [
        span(1, "a", 1, 2), span(2, "b", 3, 4, **other),
        span(3, "c", 5000, 5001, **other), span(4, "d", 6, 7),
    ]  # fmt: skip
    run = write_run(tmp_path, "01abc", batches(spans))
    with_links(run, {2: [1], 4: [3]})

    trace = traced(run)

    assert {one.name: one.begin_ns for one in trace.slices}["c"] == T0 + 5000 * MS
    assert "no shift of each fits all links" in capsys.readouterr().err
