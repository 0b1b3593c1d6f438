"""What diagnostics record together is what they would record one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import otel_ml
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.testing import Capture, otel_ml_capture
from tests.e2e.jobs import the_run_in

__all__ = ["otel_ml_capture"]


def measures(kind: str) -> Measures:
    return Measures(
        Measure(f"{kind}/size", "1", ("max",), "A number."),
        Measure(f"{kind}/mean", "1", ("mean",), "With a weight."),
        Measure(f"{kind}/norm", "1", ("std",), "Two numbers."),
        prefix=f"{kind}/",
    )


@pytest.mark.parametrize("value", [2.0, 2, torch.tensor(2.0), torch.tensor([2.0])])
@pytest.mark.parametrize("step", [None, 7])
def test_values_and_lists_are_recorded_together(otel_ml_capture: Capture, value: object, step: int | None) -> None:
    otel_ml.set_step(3)

    measures("own").record({"size": value}, step=step, several={"mean": (0.5, 4.0), "norm": [3.0, -3.0]})

    found = {point.name: point for point in otel_ml_capture.points}
    assert {point.step for point in otel_ml_capture.points} == {3 if step is None else step}
    assert (found["own/size"].value, found["own/mean"].value) == (2.0, 0.5)
    assert (found["own/norm"].count, found["own/norm"].min, found["own/norm"].max) == (2, -3.0, 3.0)


def test_a_weight_counts(tmp_path: Path) -> None:
    with otel_ml.init("weights", exporters="jsonl"):
        otel_ml.set_step(0)
        for mean, weight in ((1.0, 1.0), (2.0, 3.0)):
            measures("weighed").record({"size": 2.0}, several={"mean": (mean, weight)})
        otel_ml.shutdown(timeout=60.0)

    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["weighed/mean"] == ([0], [1.75])


def test_where_there_are_too_many_series_those_there_are_go_on(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFINITIONS, "MAX_SERIES", len(DEFINITIONS._series) + 1)
    otel_ml.set_step(0)

    measures("many").record({"size": 2.0}, several={"mean": (0.5, 4.0)})

    assert otel_ml_capture.values("many/size") == [2.0]
    assert otel_ml_capture.values("many/mean") == []
