"""A transformer that is small enough to be counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from otel_ml.diagnostics.theoretical_memory import theoretical_memory

SMALL: dict[str, Any] = {
    "layers": 2, "hidden": 4, "heads": 2, "vocabulary": 10, "sequence": 3, "micro_batch": 5,
}  # fmt: skip
LAYER = 4 * 4 * 4 + 2 * 4 * 16 + 2 * 2 * 4
"""Query, key, value and output; two matrices to four times the width and back; two norms with weight and bias."""
EMBEDDING, LAST_NORM = 10 * 4, 2 * 4
TOKENS = 3 * 5 * 4
"""s · b · h."""


@pytest.mark.parametrize(
    ("how", "parameters"),
    [
        ({}, 2 * LAYER + EMBEDDING + LAST_NORM),
        ({"tied": False}, 2 * LAYER + 2 * EMBEDDING + LAST_NORM),
        ({"ffn": 6}, 2 * (LAYER - 2 * 4 * 10) + EMBEDDING + LAST_NORM),
        ({"gated": True}, 2 * (LAYER + 4 * 16) + EMBEDDING + LAST_NORM),
        ({"key_value_heads": 1}, 2 * (LAYER - 2 * 4 * 2) + EMBEDDING + LAST_NORM),
        ({"tensor": 4, "pipeline": 2, "data": 3}, 2 * LAYER + EMBEDDING + LAST_NORM),
    ],
    ids=str,
)
def test_parameters_are_those_of_its_matrices_and_norms(how: dict[str, Any], parameters: int) -> None:
    assert theoretical_memory(**SMALL, **how).parameters == parameters


@pytest.mark.parametrize(
    ("how", "held", "per_parameter"),
    [
        ({}, 2 * LAYER + EMBEDDING, 18),
        ({"tied": False}, 2 * LAYER + 2 * EMBEDDING, 18),
        ({"pipeline": 2}, LAYER + EMBEDDING, 18),
        ({"pipeline": 2, "tied": False}, LAYER + EMBEDDING, 18),
        ({"tensor": 2}, (2 * LAYER + EMBEDDING) / 2, 18),
        ({"data": 4}, 2 * LAYER + EMBEDDING, 18),
        ({"data": 4, "sharded_optimizer": True}, 2 * LAYER + EMBEDDING, 6 + 3),
    ],
    ids=str,
)
def test_a_rank_holds_its_share_of_weights_and_optimizer(
    how: dict[str, Any], held: float, per_parameter: float
) -> None:
    assert theoretical_memory(**SMALL, **how).weights_and_optimizer == round(held * per_parameter)


@pytest.mark.parametrize(
    ("how", "activations"),
    [
        ({}, 2 * 34 * TOKENS),
        ({"recompute": "selective", "tensor": 2}, 34 * TOKENS),
        # 5 · a · s / h = 5 · 2 · 3 / 4
        ({"recompute": "none"}, 2 * (34 + 7.5) * TOKENS),
        ({"recompute": "full"}, 2 * 2 * TOKENS),
        ({"pipeline": 2}, 2 * 34 * TOKENS),
    ],
    ids=str,
)
def test_activations_are_those_that_the_backward_pass_needs(how: dict[str, Any], activations: float) -> None:
    found = theoretical_memory(**SMALL, **how)

    assert found.activations == round(activations)
    assert found.total == found.weights_and_optimizer + round(activations)
