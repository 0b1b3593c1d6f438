"""Profiler windows with torch's real profiler, on the CPU."""

from __future__ import annotations

import csv
import io
import json

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import profiling
from otel_ml.testing import Capture, Event, capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


def artifacts(captured: Capture) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in captured.events:
        if event.kind == "ml.artifact":
            found.setdefault(str(event.name), []).append(event)
    return found


def train(window: profiling.Window, steps: int) -> None:
    for _ in window.over(otel_ml.steps(range(steps))):
        torch.ones(8, 8) @ torch.ones(8, 8)


@pytest.mark.feature("M30", "better", "by step and rank; results are artifacts of every backend")
@pytest.mark.feature("R20", "yes", "timeline by step and rank")
@pytest.mark.feature("I19", "yes", "averages as CSV, and the trace")
def test_the_steps_of_a_window_become_a_trace_and_averages(otel_ml_capture: Capture) -> None:
    train(profiling.window(range(2, 4)), 6)

    ((name, files),) = artifacts(otel_ml_capture).items()
    content = {file.attributes["ml.artifact.path_in"]: file.body for file in files}
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(content["operations.csv"].decode()))}
    trace = json.loads(content["trace.json"])
    assert name == "profile-steps-2-3-rank-0"
    assert {file.attributes["ml.artifact.type"] for file in files} == {"profile"}
    assert rows["aten::mm"]["calls"] == "2"
    assert float(rows["aten::mm"]["cpu_time_us"]) > 0
    assert sum(event.get("name") == "aten::mm" for event in trace["traceEvents"]) == 2


def test_steps_apart_become_windows_of_their_own(otel_ml_capture: Capture) -> None:
    train(profiling.window([1, 4]), 6)

    assert set(artifacts(otel_ml_capture)) == {"profile-steps-1-1-rank-0", "profile-steps-4-4-rank-0"}


def test_a_window_that_the_run_ends_in_is_kept(otel_ml_capture: Capture) -> None:
    train(profiling.window(range(2, 100)), 4)

    assert set(artifacts(otel_ml_capture)) == {"profile-steps-2-3-rank-0"}


def test_other_ranks_do_not_profile() -> None:
    with capture(rank=1, world_size=2) as captured:
        train(profiling.window(range(2), ranks=[0]), 3)
        assert artifacts(captured) == {}
        train(profiling.window(range(3, 5), ranks=None), 3)
        assert set(artifacts(captured)) == {"profile-steps-3-4-rank-1"}


def test_a_profiler_that_does_not_start_is_said_and_training_goes_on(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("CUPTI is in use")

    monkeypatch.setattr(torch.profiler, "profile", refuse)

    train(profiling.window(range(2)), 3)

    (notice,) = otel_ml_capture.notices
    assert notice.startswith("The profiler is not used: RuntimeError: CUPTI is in use.")


def test_a_wrong_window_is_refused_with_all_that_is_wrong() -> None:
    with pytest.raises(otel_ml.ConfigError) as caught:
        profiling.window([-1], ranks=["a"])

    assert "steps=" in str(caught.value)
    assert "ranks=" in str(caught.value)


def test_a_window_without_an_end_takes_no_memory() -> None:
    endless = profiling.window(range(5, 10**12), ranks=range(10**12))

    assert endless is not None
    with pytest.raises(otel_ml.ConfigError, match="steps="):
        profiling.window(range(-2, 10**12))
