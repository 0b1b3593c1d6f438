"""What the demo's evaluator takes, records and crosses off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_ml.testing import Capture, otel_ml_capture
from otel_ml_service.demo.digits import held_out_set
from otel_ml_service.demo.evaluator import evaluate, next_checkpoint
from otel_ml_service.demo.network import Network
from otel_ml_service.demo.settings import Settings
from tests.unit.otel_ml_service.demo.few_digits import write_digits

__all__ = ["otel_ml_capture"]


def test_every_checkpoint_is_evaluated_at_its_step_and_crossed_off(otel_ml_capture: Capture, tmp_path: Path) -> None:
    write_digits(tmp_path)
    networks = {19: Network(8, 3), 39: Network(8, 4)}
    for step, network in networks.items():
        network.save(tmp_path / f"step-{step:05d}.npz")
    (tmp_path / "finished").touch()

    evaluate(tmp_path, Settings(hidden=8))

    data = held_out_set(tmp_path)
    found = [network.forward(data) for network in networks.values()]
    assert otel_ml_capture.values("loss", axis="eval") == pytest.approx([loss for loss, _ in found])
    assert otel_ml_capture.values("accuracy", axis="eval") == pytest.approx([accuracy for _, accuracy in found])
    assert {point.step for point in otel_ml_capture.points if point.name == "time/forward"} == {19, 39}
    wrong = np.flatnonzero(networks[39].predicted != data.labels)
    said = {(event.kind, event.step): event for event in otel_ml_capture.events}
    assert 0 < len(wrong) < len(data.labels)
    assert said["ml.image", 39].attributes["ml.caption"] == f"{len(wrong)} wrongly classified"
    rows = said["ml.table", 39].body["rows"]
    assert [row[:3] for row in rows] == [
        [int(image), int(data.labels[image]), int(networks[39].predicted[image])] for image in wrong
    ]
    assert [row[3] for row in rows] == pytest.approx([networks[39].probabilities[image].max() for image in wrong])
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-00019.done", "step-00039.done"]


def test_the_oldest_checkpoint_that_is_not_crossed_off_is_the_next(tmp_path: Path) -> None:
    for name in ("step-00059.npz", "step-00019.done", "step-00039.npz", "step-00019.partial.npz"):
        (tmp_path / name).touch()

    assert next_checkpoint(tmp_path) == tmp_path / "step-00039.npz"


def test_what_is_left_when_training_is_over_is_taken_and_then_there_is_no_more(tmp_path: Path) -> None:
    (tmp_path / "step-00039.npz").touch()
    (tmp_path / "finished").touch()
    last = next_checkpoint(tmp_path)

    assert last == tmp_path / "step-00039.npz"
    last.rename(last.with_suffix(".done"))
    assert next_checkpoint(tmp_path) is None
