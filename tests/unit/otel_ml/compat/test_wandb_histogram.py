"""The bins of `wandb.Histogram`, as W&B has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.recorded import events


def counted_by(of: Any, values: Any, num_bins: Any) -> tuple[list[float], list[float]]:
    found = of.Histogram(values, num_bins=num_bins)
    return [float(count) for count in found.histogram], [float(edge) for edge in found.bins]


@pytest.mark.parametrize(
    "num_bins", [[0.0, 1.0, 2.0, 3.5], np.array([0, 2, 4]), (1, 2), "auto", "sturges", np.int64(7), 3]
)
def test_bins_are_a_number_edges_or_a_rule_as_for_wandb(captured_wandb: Capture, num_bins: Any) -> None:
    original = pytest.importorskip("wandb")
    values = [0.0, 1.0, 1.5, 3.0, 3.0]

    expected = counted_by(original, values, num_bins)

    assert counted_by(wandb, values, num_bins) == expected
    wandb.log({"spread": wandb.Histogram(values, num_bins=num_bins)})
    assert events(captured_wandb, "histogram")["spread"].body == dict(zip(("counts", "edges"), expected, strict=True))


@pytest.mark.parametrize("num_bins", ["nosuch", 2.5, [3, 1, 2], None, list(range(600))])
def test_bins_that_numpy_does_not_take_are_said_and_64_taken(captured_wandb: Capture, num_bins: Any) -> None:
    wandb.log({"spread": wandb.Histogram([0.0, 1.0, 3.0], num_bins=num_bins)})

    assert len(events(captured_wandb, "histogram")["spread"].body["counts"]) == 64
    assert "wandb.Histogram(num_bins=" in captured_wandb.notices[0]
