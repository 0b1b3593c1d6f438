from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from otel_ml_service.demo.digits import Batch
from otel_ml_service.demo.network import Network


def batch(count: int = 6) -> Batch:
    random = np.random.default_rng(0)
    return Batch(random.random((count, 64), dtype=np.float32), random.integers(0, 10, count))


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    network, data = Network(hidden=4, seed=1), batch()
    network.parameters = network.parameters.astype(np.float64)
    network.forward(data)
    gradient = network.backward()

    for index in range(0, len(gradient), 37):
        ends = []
        for change in (1e-5, -1e-5):
            network.parameters[index] += change
            ends.append(network.forward(data)[0])
            network.parameters[index] -= change
        assert gradient[index] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-5)


def test_updates_lower_the_loss() -> None:
    network, data = Network(hidden=16, seed=1), batch()
    before, _ = network.forward(data)

    for _ in range(50):
        network.forward(data)
        network.update(network.backward(), learning_rate=0.1)

    assert network.forward(data)[0] < before / 2


def test_a_loaded_network_predicts_what_the_saved_one_did(tmp_path: Path) -> None:
    saved, loaded, data = Network(hidden=4, seed=1), Network(hidden=4, seed=2), batch()
    saved.save(tmp_path / "model.npz")
    loaded.load(tmp_path / "model.npz")

    assert loaded.forward(data) == saved.forward(data)
