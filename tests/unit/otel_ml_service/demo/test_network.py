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


def test_scores_of_any_size_have_probabilities_and_a_loss() -> None:
    network, data = Network(hidden=4, seed=1), batch()
    network.parameters *= 1000

    loss, _ = network.forward(data)

    assert np.isfinite(network.probabilities).all()
    assert network.probabilities.sum(axis=1) == pytest.approx(np.ones(6))
    assert 0 < loss <= -np.log(1e-12) + 1e-6


def test_a_network_that_knows_nothing_takes_everything_for_a_0() -> None:
    network, data = Network(hidden=4, seed=1), batch(8)
    network.parameters *= 0

    loss, accuracy = network.forward(data)

    assert loss == pytest.approx(np.log(10), rel=1e-6)
    assert accuracy == np.mean(data.labels == 0)
    assert network.predicted.tolist() == [0] * 8


def test_a_new_network_has_weights_that_keep_the_size_of_what_goes_through_and_no_bias() -> None:
    first, again, other = Network(1000, seed=1), Network(1000, seed=1), Network(1000, seed=2)
    w1, b1, w2, b2 = np.split(first.parameters, [64_000, 65_000, 75_000])

    assert (w1.std(), w2.std()) == (
        pytest.approx(np.sqrt(2 / 64), rel=0.02),
        pytest.approx(np.sqrt(2 / 1000), rel=0.05),
    )
    assert not b1.any()
    assert not b2.any()
    assert len(b2) == 10
    assert (first.parameters == again.parameters).all()
    assert (first.parameters != other.parameters).any()


def test_an_update_goes_down_and_keeps_nine_tenths_of_its_speed() -> None:
    network = Network(hidden=4, seed=1)
    before, gradient = network.parameters.copy(), np.full_like(network.parameters, 2.0)

    network.update(gradient, learning_rate=0.5)
    assert network.parameters == pytest.approx(before - 1.0)
    network.update(gradient, learning_rate=0.25)
    assert network.parameters == pytest.approx(before - 1.0 - 0.9 - 0.5)
