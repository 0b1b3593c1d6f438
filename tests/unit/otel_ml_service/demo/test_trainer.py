"""What one rank of the demo records, and what it leaves for the evaluator."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from otel_ml.testing import Capture, otel_ml_capture
from otel_ml_service.demo import digits
from otel_ml_service.demo.disturbance import KILL_EVALUATOR_AT, slow_down
from otel_ml_service.demo.network import Network
from otel_ml_service.demo.settings import Settings
from otel_ml_service.demo.trainer import train
from tests.unit.otel_ml_service.demo.few_digits import write_digits

__all__ = ["otel_ml_capture"]

STEPS = 41
"""One more than two checkpoints are apart."""


def test_a_rank_records_its_training_and_leaves_a_checkpoint_every_20_steps(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    write_digits(tmp_path)

    train(tmp_path, 0, 1, Settings(steps=STEPS))

    loss, accuracy, norms = trained(tmp_path)
    assert otel_ml_capture.values("loss") == pytest.approx(loss)
    assert otel_ml_capture.values("accuracy") == pytest.approx(accuracy)
    assert otel_ml_capture.values("grad_norm") == pytest.approx(norms)
    assert otel_ml_capture.values("samples") == [32.0] * STEPS
    assert otel_ml_capture.values("learning_rate") == pytest.approx([0.1 - 0.09 * step / 41 for step in range(STEPS)])
    reductions = {point.name: point.reduction for point in otel_ml_capture.points}
    assert reductions["samples"] == "sum"
    assert reductions["loss"] == reductions["accuracy"] == "mean,min,max"
    assert reductions["time/sync"] == reductions["time/step"] == "sum>max,mean,argmax"
    assert {"time/data", "time/forward", "time/backward", "time/optimizer"} < reductions.keys()
    assert sorted(path.name for path in tmp_path.glob("*.npz")) == [
        "digits.npz", "model.npz", "step-00019.npz", "step-00039.npz",
    ]  # fmt: skip


def test_a_rank_says_what_it_trains_with_and_rank_0_on_what(otel_ml_capture: Capture, tmp_path: Path) -> None:
    write_digits(tmp_path)

    train(tmp_path, 0, 1, Settings(steps=2))

    told = {event.kind: event for event in otel_ml_capture.events}
    assert told["ml.text"].body == digits.DESCRIPTION
    assert told["ml.params"].body == {
        "ranks": 1, "steps": 2, "batch_size": 32, "hidden": 128, "learning_rate": 0.1, "momentum": 0.9,
        "evaluate_every": 20, "seed": 7,
    }  # fmt: skip
    _, accuracy, _ = trained(tmp_path, 2)
    assert (told["ml.artifact"].name, told["ml.artifact"].step) == ("model.npz", 1)
    assert told["ml.artifact"].body == (tmp_path / "model.npz").read_bytes()
    assert told["ml.summary"].body == {"train/accuracy": pytest.approx(accuracy[-1])}


def trained(folder: Path, steps: int = STEPS) -> tuple[list[float], list[float], list[float]]:
    """Return loss, accuracy and norm of the gradient of each step of the same training, without otel_ml."""
    network, velocity = Network(128, 7), 0.0
    loader = digits.batches(digits.training_set(folder), rank=0, world_size=1, batch_size=32, steps=steps, seed=7)
    found = []
    for step, batch in enumerate(loader):
        loss, accuracy = network.forward(batch)
        gradient = network.backward()
        found.append((loss, accuracy, float(np.sqrt((gradient**2).sum()))))
        velocity = 0.9 * velocity - (0.1 - 0.09 * step / steps) * gradient
        network.parameters = (network.parameters + velocity).astype(np.float32)
    losses, accuracies, norms = zip(*found, strict=True)
    return list(losses), list(accuracies), list(norms)


def test_one_rank_is_slow_for_41_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    slow = []
    for rank in range(4):
        for step in range(240):
            before = len(slept)
            slow_down(rank, step)
            slow += [(rank, step)] * (len(slept) - before)

    assert slow == [(2, step) for step in range(40, 81)]
    assert set(slept) == {0.025}


def test_the_evaluator_is_killed_when_a_checkpoint_was_evaluated() -> None:
    assert KILL_EVALUATOR_AT % Settings().evaluate_every == 0
    assert Settings().steps > KILL_EVALUATOR_AT


@pytest.mark.parametrize(("step", "rate"), [(0, 0.1), (120, 0.055), (240, 0.01)])
def test_the_learning_rate_falls_to_a_tenth(step: int, rate: float) -> None:
    assert Settings().learning_rate_at(step) == pytest.approx(rate)
