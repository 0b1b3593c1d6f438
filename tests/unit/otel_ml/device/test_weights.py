"""Weights on a device, which are read after the call: what is none is refused as one in CPU memory is, and said."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

import otel_ml
from otel_ml._internal.device_tensor import Weighted
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.run_scope import SCOPES
from otel_ml._internal.series.definition import DEFINITIONS
from otel_ml.testing import Capture, capture
from tests.fake_cuda import FakeCuda
from tests.waiting import eventually


@pytest.fixture
def run(cuda: FakeCuda) -> Iterator[Capture]:
    """A run whose device stands there until it ends."""
    with capture() as found:
        yield found


NO_WEIGHTS = [math.inf, math.nan, -1.0]


@pytest.mark.parametrize("values", ["in memory", "on the device"])
@pytest.mark.parametrize("bad", NO_WEIGHTS)
def test_a_value_whose_weight_is_none_is_counted_and_the_others_are_recorded(
    cuda: FakeCuda, run: Capture, values: str, bad: float
) -> None:
    numbers = [1.0, 2.0, 4.0]
    for step in range(3):
        given = numbers if values == "in memory" else cuda.tensor(numbers)
        otel_ml.record("loss", given, step, weight=cuda.tensor([3.0, bad, 1.0]))
    otel_ml.flush()

    found = [(point.count, point.value, point.min, point.max) for point in run.points if point.name == "loss"]
    assert found == [(2, 5.0, 1.0, 4.0)] * 3
    assert reporter.dropped == {"bad_weight": 3}
    [notice] = run.notices
    assert notice.startswith("Metric 'loss': ")
    assert f"weight {bad}, which is not a finite number from 0 on" in notice


@pytest.mark.parametrize("weights", [[1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
def test_values_with_another_number_of_weights_are_counted(cuda: FakeCuda, run: Capture, weights: list[float]) -> None:
    otel_ml.record("loss", cuda.tensor([1.0, 2.0, 3.0]), weight=cuda.tensor(weights))
    otel_ml.flush()

    assert run.values("loss") == []
    assert reporter.dropped == {"bad_weight": 3}
    [notice] = run.notices
    assert f"{len(weights)} weights for 3 values" in notice


@pytest.mark.parametrize("bad", NO_WEIGHTS)
def test_a_weight_in_memory_is_refused_at_the_call_though_the_value_comes_later(
    cuda: FakeCuda, run: Capture, bad: float
) -> None:
    cuda.stream.hold()
    otel_ml.record("loss", cuda.tensor(1.0), weight=bad)

    assert reporter.dropped == {"bad_weight": 1}
    [notice] = run.notices
    assert f"weight {bad}, which is not a finite number from 0 on" in notice
    cuda.stream.release()


@pytest.mark.parametrize("bad", NO_WEIGHTS)
def test_a_weight_that_a_captured_graph_computes_is_refused_as_well(cuda: FakeCuda, run: Capture, bad: float) -> None:
    weight = cuda.tensor(2.0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        otel_ml.log({"loss": cuda.tensor(5.0)}, weight=weight)
    for step, number in enumerate((2.0, bad, 3.0)):
        otel_ml.set_step(step)
        weight.fill_(number)
        graph.replay()
    otel_ml.set_step(3)

    assert eventually(lambda: len(run.values("loss")) == 2)
    assert reporter.dropped == {"bad_weight": 1}
    [notice] = run.notices
    assert f"weight {bad}, which is not a finite number from 0 on" in notice


@pytest.mark.parametrize("place", [0, 1])
def test_of_several_runs_the_one_of_the_value_counts_it_whoever_reads_it(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setenv("OTEL_ML_CAPTURE", "off")
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    runs = [otel_ml.init("exp", id=name, exporters="jsonl") for name in ("first", "other")]
    scopes = [*SCOPES.active]
    with runs[1 - place].use():
        step = scopes[place].steps.open("step", 0)
        assert Weighted([1.0], [-1.0]).records(DEFINITIONS.series("loss"), step, 0) == ()

    assert [dict(scopes[n].dropped) for n in (place, 1 - place)] == [{"bad_weight": 1}, {}]
    for run in runs:
        run.shutdown()
