"""What is computed with numbers for tensors in memory is what is computed with tensors on a device."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import otel_ml
from otel_ml.diagnostics import dynamics, rl
from otel_ml.diagnostics.dynamics import host_norms
from otel_ml.diagnostics.small_tensors import Statistics
from otel_ml.testing import Capture, otel_ml_capture
from tests.e2e.jobs import the_run_in
from tests.unit.otel_ml.diagnostics.elsewhere import elsewhere

__all__ = ["otel_ml_capture"]

TENSORS = {
    "weight": torch.tensor([[3.0, 0.0], [-4.0, 0.5]]),
    "bias": torch.tensor([0.0, -7.0], dtype=torch.float64),
    "half": torch.tensor([0.5, -0.25, 0.0], dtype=torch.bfloat16),
    "empty": torch.zeros(0),
}


PLACES = {"here": torch.as_tensor, "there": elsewhere}
"""Each records on an axis of its own."""

Found = Mapping[str, tuple[float, ...]]


def recorded(capture: Capture, axis: str) -> Found:
    """Return what was recorded on an axis, by name and step."""
    return {
        f"{point.name} at {point.step}": (point.count, point.value, point.min, point.max, *point.attributes.values())
        for point in capture.points
        if point.axis == axis
    }


def assert_same(capture: Capture, *axes: str) -> None:
    first, *others = [recorded(capture, axis) for axis in axes]
    assert first
    for other in others:
        assert other.keys() == first.keys()
        for name, values in first.items():
            assert other[name] == pytest.approx(values, rel=1e-6, nan_ok=True), name


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_norms(otel_ml_capture: Capture, bad: float | None) -> None:
    tensors = dict(TENSORS) if bad is None else {**TENSORS, "bad": torch.tensor([1.0, bad])}
    for axis, place in PLACES.items():
        otel_ml.set_step(3, axis=axis)
        placed = {name: place(tensor) for name, tensor in tensors.items()}
        gradients = [(name, SimpleNamespace(grad=tensor)) for name, tensor in placed.items()]
        dynamics.Norms(placed.items(), each="weight", world_size=2).record_parameters()
        dynamics.Norms(gradients, each="weight", world_size=2).record_gradients()

    assert_same(otel_ml_capture, *PLACES)


def test_a_norm_of_tensors_in_both_places(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)
    dynamics.Norms([("here", torch.tensor([3.0])), ("there", elsewhere([4.0]))]).record_parameters()

    (norm,) = [point for point in otel_ml_capture.points if point.name == "param/norm"]
    assert (norm.count, norm.min, norm.max) == (2, -5.0, 5.0)


@pytest.mark.parametrize("mask", [None, torch.tensor([True, False, True, True])])
def test_advantages(otel_ml_capture: Capture, mask: torch.Tensor | None) -> None:
    for axis, place in PLACES.items():
        otel_ml.set_step(0, axis=axis)
        rl.advantages(place([1.5, -9.0, 0.0, 2.5]), None if mask is None else place(mask))

    assert_same(otel_ml_capture, *PLACES)


@pytest.mark.parametrize("as_mask", [list, np.asarray, torch.as_tensor])
def test_a_mask_is_whatever_holds_a_verdict_for_each_element(otel_ml_capture: Capture, as_mask: Any) -> None:
    otel_ml.set_step(0)
    rl.advantages(torch.tensor([1.5, -9.0, 0.0, 2.5]), as_mask([True, False, True, True]))

    assert otel_ml_capture.values("rl/train/advantage/min") == [0.0]


def test_groups(otel_ml_capture: Capture) -> None:
    for axis, place in {**PLACES, "lists": list, "array": np.asarray}.items():
        otel_ml.set_step(0, axis=axis)
        rl.groups(place([[1.0, 0.0, 1.0], [2.0, 2.0, 2.0]]))

    assert_same(otel_ml_capture, *PLACES, "lists", "array")
    assert recorded(otel_ml_capture, "here")["rl/sample/group_uniform at 0"][:2] == (2, 1.0)


def test_lengths_of_sequences(otel_ml_capture: Capture) -> None:
    for axis, place in {**PLACES, "array": np.asarray}.items():
        otel_ml.set_step(0, axis=axis)
        rl.sequence_lengths(place([5, 9, 2]))

    assert_same(otel_ml_capture, *PLACES, "array")


def test_staleness(otel_ml_capture: Capture) -> None:
    for axis, place in {**PLACES, "array": np.asarray}.items():
        otel_ml.set_step(0, axis=axis)
        rl.policy_staleness(place([7, 5, 3]), current=7)

    assert_same(otel_ml_capture, *PLACES, "array")


def test_rewards_of_a_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_ML_CONSOLE", "off")
    with otel_ml.init("rewards", exporters="jsonl"):
        for axis, place in {**PLACES, "lists": list}.items():
            otel_ml.set_step(0, axis=axis)
            rl.batch_reward(place([1.0, 0.25, 0.0, 0.5]), correct=place([True, True, False, False]))
            rl.batch_reward(place([1.0]), correct=place([True]), environment="math")
            rl.batch_reward(place([1.0, 3.0]), correct=place([1.0, 0.5]), environment="code")
            rl.batch_reward(place([3.0, 5.0]), contexts=[otel_ml.context(), "of another tracer"])
    written = the_run_in(tmp_path / "otel-ml-runs") / "metrics.jsonl"

    lines = [json.loads(line) for line in written.read_text().splitlines()]
    rows = {line["axis"]: line["values"] for line in lines if line.get("axis") in {*PLACES, "lists"}}
    # What the service says of itself is left out: points that came twice, on a busy machine, are of one row alone.
    found = {
        axis: {name.removeprefix(f"{axis}/"): value for name, value in row.items() if not name.startswith("otel_ml/")}
        for axis, row in rows.items()
    }
    assert found["there"] == found["here"] == found["lists"]
    assert found["here"]["rl/sample/reward/correct"] == 0.625
    assert found["here"]["rl/sample/reward/correct/environment/code"] == 2.5 / 1.5
    assert found["here"]["rl/sample/reward/incorrect/environment/code"] == 3.0
    assert found["here"]["rl/sample/reward/trainer/0"] == 3.0
    assert found["here"]["rl/sample/reward/incorrect"] == 0.25
    assert "rl/sample/reward/incorrect/environment/math" not in found["here"]


def test_iterations(otel_ml_capture: Capture) -> None:
    places = {**PLACES, "number": float}
    for axis, place in places.items():
        iterations = dynamics.Iterations(interval=2)
        for step, loss in enumerate([1.0, math.nan, 3.0, 100.0]):
            otel_ml.set_step(step, axis=axis)
            iterations.step(place(loss), samples=8, skipped=place(float(step == 3)))

    assert_same(otel_ml_capture, *places)


@given(st.lists(st.floats(-1e6, 1e6, width=32) | st.just(0.0), max_size=40))
def test_small_tensors_and_large_ones(values: list[float]) -> None:
    tensors = [torch.tensor(values)]
    repeats = host_norms.GRAIN + 1
    if 0 < len(values) < 3:
        tensors.append(torch.tensor(values).repeat(repeats))
    (_, square, zeros, largest), *large = each(host_norms.statistics(tensors))

    assert square == pytest.approx(math.fsum(value * value for value in values), rel=1e-9)
    assert zeros == sum(value == 0 for value in values)
    assert largest == max(map(abs, values), default=0.0)
    for one in large:
        assert one[1] == pytest.approx(square * repeats, rel=1e-9)
        assert one[2:] == (zeros * repeats, largest)


def each(found: Statistics) -> list[tuple[int, float, int, float]]:
    return list(zip(*found, strict=True))


VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-30, 3e38, math.nan, math.inf, -math.inf]), max_size=6)


@given(st.lists(VALUES, max_size=8), st.integers(1, 40))
def test_tensors_that_are_looked_at_together_are_what_each_is_by_itself(groups: list[list[float]], room: int) -> None:
    tensors = [torch.tensor(values, dtype=torch.float64) for values in groups]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_norms, "_TOGETHER", room)  # a bound that a test can reach
        together = each(host_norms._statistics(tensors))  # as where nothing is compiled

    assert str(together) == str([one for tensor in tensors for one in each(host_norms._statistics([tensor]))])
    for (size, square, zeros, largest), values in zip(together, groups, strict=True):
        assert size == len(values)
        assert square == pytest.approx(sum(value * value for value in values), nan_ok=True)
        assert zeros == values.count(0.0)
        assert largest == pytest.approx(max(map(abs, values), default=0.0), nan_ok=True) or math.nan in values
