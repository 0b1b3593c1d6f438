"""`wandb.watch()` records how gradients and parameters are distributed, and never stops a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat import wandb
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.recorded import events


def backward(model: torch.nn.Module, times: int = 1) -> None:
    for _ in range(times):
        model(torch.ones(4, 3)).sum().backward()


def histograms(captured_wandb: Capture) -> list[tuple[str | None, int | None]]:
    return [(event.name, event.step) for event in captured_wandb.events if event.kind == "ml.histogram"]


def test_the_gradients_are_in_the_row_that_is_open_and_counted_in_64_bins(captured_wandb: Capture) -> None:
    model = torch.nn.Linear(3, 200)
    wandb.watch(model, log_freq=1)
    wandb.log({"loss": 1.0})
    model(torch.randn(4, 3)).square().sum().backward()
    wandb.log({"loss": 0.5})

    assert histograms(captured_wandb) == [("gradients/bias", 1), ("gradients/weight", 1)]
    counts, edges = np.histogram(model.weight.grad.double().numpy(), bins=64)
    kept = events(captured_wandb, "histogram")["gradients/weight"].body
    assert sum(kept["counts"]) == 600
    assert np.abs(np.array(kept["counts"]) - counts).sum() <= 4  # at an edge single precision may go the other way
    assert kept["edges"] == pytest.approx(edges, rel=1e-5, abs=1e-6)


def test_by_default_every_thousandth_pass_is_looked_at(captured_wandb: Capture) -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    wandb.watch(model)
    backward(model, 999)
    assert histograms(captured_wandb) == []
    backward(model)
    assert histograms(captured_wandb) == [("gradients/weight", 0)]


def test_parameters_are_looked_at_after_a_forward_pass(captured_wandb: Capture) -> None:
    model = torch.nn.Linear(3, 1)
    wandb.watch(model, log="parameters", log_freq=2)
    with torch.no_grad():
        for _ in range(3):
            model(torch.ones(4, 3))

    assert histograms(captured_wandb) == [("parameters/weight", 0), ("parameters/bias", 0)]


def test_models_after_the_first_have_their_number_in_the_name(captured_wandb: Capture) -> None:
    models = [torch.nn.Linear(3, 1, bias=False) for _ in range(3)]
    wandb.watch(models[:2], log_freq=1)
    wandb.watch(models[2], log_freq=1)
    for model in models:
        backward(model)

    assert [name for name, _ in histograms(captured_wandb)] == [
        "gradients/weight",
        "gradients/graph_1weight",
        "gradients/graph_2weight",
    ]


def test_unwatch_takes_the_hooks_of_a_model_or_of_all_and_so_does_the_end_of_the_run(captured_wandb: Capture) -> None:
    models = [torch.nn.Linear(3, 1, bias=False) for _ in range(2)]
    wandb.watch(models, log="all", log_freq=1)
    wandb.unwatch(models[0])
    backward(models[0])
    assert histograms(captured_wandb) == []
    wandb.unwatch()
    backward(models[1])
    assert histograms(captured_wandb) == []
    wandb.watch(models, log_freq=1)
    wandb.finish()
    assert [parameter._backward_hooks for model in models for parameter in model.parameters()] == [{}, {}]
    assert captured_wandb.notices == []


@pytest.mark.parametrize(
    ("values", "counts", "edges"),
    [
        ([2.0, 2.0, 2.0], 3, (1.5, 2.5)),
        ([1.0, float("nan"), 3.0, float("inf")], 2, (1.0, 3.0)),
        ([float("nan"), float("-inf")], 0, (-0.5, 0.5)),
    ],
)
def test_equal_and_not_finite_values_are_counted_without_an_error(
    captured_wandb: Capture, values: list[float], counts: int, edges: tuple[float, float]
) -> None:
    model = torch.nn.Linear(1, 1)
    model.weight = torch.nn.Parameter(torch.tensor([values]).T)
    model.bias = None
    wandb.watch(model, log="parameters", log_freq=1)
    model(torch.ones(1, 1))

    kept = events(captured_wandb, "histogram")["parameters/weight"].body
    assert sum(kept["counts"]) == counts
    assert (kept["edges"][0], kept["edges"][-1]) == edges
    assert captured_wandb.notices == []


def test_half_precision_sparse_and_empty_parameters_are_looked_at(captured_wandb: Capture) -> None:
    table = torch.nn.Embedding(10, 2, sparse=True)
    half = torch.nn.Linear(3, 1, dtype=torch.bfloat16)
    half.empty = torch.nn.Parameter(torch.zeros(0, dtype=torch.bfloat16))
    wandb.watch([table, half], log="all", log_freq=1)
    table(torch.tensor([1, 1])).sum().backward()
    half(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()

    kept = events(captured_wandb, "histogram")
    assert sum(kept["gradients/weight"].body["counts"]) == 20
    assert sum(kept["gradients/graph_1weight"].body["counts"]) == 3
    assert "parameters/graph_1empty" not in kept
    assert captured_wandb.notices == []


@pytest.mark.parametrize(
    ("given", "options", "said"),
    [
        ("no model", {}, "TypeError: Expected a pytorch model (torch.nn.Module), got 'no model'"),
        (torch.nn.Linear(1, 1), {"log": "weights"}, "ValueError: log must be one of 'gradients', 'parameters', 'all'"),
        (torch.nn.Linear(1, 1), {"log_graph": True}, "the model is kept as the text that it prints as"),
    ],
)
def test_what_wandb_refuses_or_draws_is_said(
    captured_wandb: Capture, given: Any, options: dict[str, Any], said: str
) -> None:
    wandb.watch(given, **options)

    [notice] = captured_wandb.notices
    assert said in notice


def test_the_model_is_a_text_where_its_graph_is_asked_for(captured_wandb: Capture) -> None:
    model = torch.nn.Linear(3, 1)
    wandb.watch(model, log=None, log_graph=True)
    backward(model)

    assert events(captured_wandb, "text")["graph_0"].body == str(model)
    assert histograms(captured_wandb) == []
