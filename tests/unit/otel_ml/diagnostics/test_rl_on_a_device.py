"""What the helpers of reinforcement learning are given on the host goes to a device without anybody waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import otel_ml
from otel_ml.diagnostics import rl
from otel_ml.testing import Capture, otel_ml_capture
from otel_ml.wire.trace_context import half_of_role, span_half, traceparent
from tests.fake_cuda import FakeCuda

__all__ = ["otel_ml_capture"]

CHOSEN = [[True, False], [True, True]]


@pytest.mark.parametrize("made", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
def test_a_mask_of_the_host_chooses_among_values_of_a_device(
    otel_ml_capture: Capture, cuda: FakeCuda, made: Callable[[Any], Any]
) -> None:
    values = torch.arange(4, device="cuda", dtype=torch.float32).view(2, 2)
    otel_ml.set_step(0)

    rl.advantages(values, made(CHOSEN))

    assert otel_ml_capture.values("rl/train/advantage") == [pytest.approx(5 / 3)]
    assert otel_ml_capture.values("rl/train/advantage/max") == [3.0]
    assert otel_ml_capture.notices == []
    assert cuda.waits == []


def test_rewards_of_a_device_are_split_by_who_made_the_samples(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    half = half_of_role("generator")
    made_by = {rank: traceparent(half << 64 | 7, span_half(half, rank, 390, 0)) for rank in (1, 3)}
    rewards = torch.arange(4, device="cuda", dtype=torch.float32)
    otel_ml.set_step(0)

    rl.batch_reward(rewards, contexts=[made_by[3], made_by[1], made_by[3], "of another tracer"])

    found = {p.attributes.get("generator"): p.value for p in otel_ml_capture.points if p.name == "rl/sample/reward"}
    assert found == {None: 6.0, "1": 1.0, "3": 2.0}
    assert otel_ml_capture.notices == []
    assert cuda.waits == []


@pytest.mark.parametrize("verdict", [-1.0, 2.0, float("nan")])
def test_verdicts_of_a_device_count_by_what_they_are_from_0_to_1(
    otel_ml_capture: Capture, cuda: FakeCuda, verdict: float
) -> None:
    rewards = torch.arange(4, device="cuda", dtype=torch.float32)
    verdicts = rewards.masked_fill(rewards == 2.0, 0.5).masked_fill(rewards == 3.0, verdict)
    otel_ml.set_step(0)

    for _ in range(2):
        rl.batch_reward(rewards, correct=verdicts)

    assert otel_ml_capture.values("rl/sample/reward/correct") == [(1.0 + 0.5 * 2.0) / 1.5]
    assert otel_ml_capture.values("rl/sample/reward/incorrect") == [0.5 * 2.0 / 1.5]
    correct, incorrect = otel_ml_capture.notices
    assert "'rl/sample/reward/correct': expected weights that are finite numbers from 0 on" in correct
    assert "'rl/sample/reward/incorrect': expected weights" in incorrect
    assert cuda.waits == []


def test_a_mask_that_is_pinned_already_may_change_after_the_call(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    values, mask = torch.arange(4, device="cuda", dtype=torch.float32), torch.tensor([True, False, True, True])
    pinned = torch.empty(4, dtype=torch.bool, pin_memory=True).copy_(mask)
    otel_ml.set_step(0)
    cuda.stream.hold()

    rl.advantages(values, pinned)
    pinned.zero_()
    cuda.stream.release()

    assert otel_ml_capture.values("rl/train/advantage") == [pytest.approx(5 / 3)]
    assert cuda.waits == []


def test_a_mask_of_the_host_is_no_part_of_a_graph_that_is_captured(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    graph, values = torch.cuda.CUDAGraph(), torch.arange(4, device="cuda", dtype=torch.float32)
    otel_ml.set_step(0)
    with torch.cuda.graph(graph):
        rl.advantages(values, [True, False, True, True])
        values.add_(1)
    graph.replay()

    assert otel_ml_capture.points == []
    (notice,) = otel_ml_capture.notices
    assert "outside of the captured region" in notice
