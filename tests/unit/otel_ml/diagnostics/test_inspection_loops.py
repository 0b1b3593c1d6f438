"""What Inspector shows does not depend on where a training loop empties its gradients, or validates its model."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks

import otel_ml
from otel_ml.diagnostics.dynamics import Norms
from otel_ml.diagnostics.inspection import Inspector
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]

Loop = Callable[[torch.nn.Module, torch.optim.Optimizer, Inspector], None]
Before = Callable[[torch.nn.Module], None]

BATCH = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
VALIDATION = BATCH * 100
LINEAR = {"layer_name_regex_pattern": "0|2"}


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))


def inspected(net: torch.nn.Module, *tensors: str) -> Inspector:
    rules = {"stats": ["l1_norm", "max"], "tensors": list(tensors)}
    return Inspector(net, {"all": {"layers": LINEAR, "LogTensorStats": rules}})


def backward(net: torch.nn.Module) -> None:
    net(BATCH).square().sum().backward()


def validate(net: torch.nn.Module) -> None:
    net.eval()
    with torch.no_grad():
        net(VALIDATION)
    net.train()


def emptied_first(net: torch.nn.Module, optimizer: torch.optim.Optimizer, inspector: Inspector) -> None:
    optimizer.zero_grad()
    backward(net)
    optimizer.step()
    inspector.step()


def emptied_at_once(net: torch.nn.Module, optimizer: torch.optim.Optimizer, inspector: Inspector) -> None:
    backward(net)
    optimizer.step()
    optimizer.zero_grad()
    inspector.step()


def emptied_to_zeros(net: torch.nn.Module, optimizer: torch.optim.Optimizer, inspector: Inspector) -> None:
    backward(net)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    inspector.step()


def without_an_optimizer_of_torch(net: torch.nn.Module, _: torch.optim.Optimizer, inspector: Inspector) -> None:
    net.zero_grad()
    backward(net)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= 0.1 * parameter.grad
    inspector.step()


def nothing(_: torch.nn.Module) -> None:
    """Do nothing before the first step."""


def shown(captured: Capture, loop: Loop, *tensors: str, before: Before = nothing) -> dict[tuple[str, int], float]:
    """Return the mean of each statistic in each step of a run of its own."""
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inspector = inspected(net, *tensors)
    first = len(captured.points)
    before(net)
    for step in range(3):
        otel_ml.set_step(first + step)
        loop(net, optimizer, inspector)
    inspector.close()
    return {
        (point.name, point.step - first): point.value / point.count
        for point in captured.points
        if point.step is not None and point.step >= first
    }


@pytest.mark.feature("M27", "better", "gradients of weights are seen where they were emptied before the step ended")
@pytest.mark.parametrize("loop", [emptied_at_once, emptied_to_zeros, without_an_optimizer_of_torch])
def test_gradients_of_weights_are_those_that_the_step_was_made_with(otel_ml_capture: Capture, loop: Loop) -> None:
    expected = shown(otel_ml_capture, emptied_first, "wgrad")

    found = shown(otel_ml_capture, loop, "wgrad")

    assert len(expected) == 2 * 2 * 3
    assert found == pytest.approx(expected)


def test_several_updates_in_a_step_are_merged(otel_ml_capture: Capture) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inspector = inspected(net, "wgrad")
    otel_ml.set_step(0)
    norms = []
    for _ in range(3):
        backward(net)
        assert net[2].weight.grad is not None  # type: ignore[union-attr,index]
        norms.append(float(net[2].weight.grad.abs().sum()))  # type: ignore[union-attr,index,operator]
        optimizer.step()
        optimizer.zero_grad()
    inspector.step()
    inspector.close()

    found = {point.name: point.value / point.count for point in otel_ml_capture.points}
    assert found["inspect/2/wgrad/l1_norm"] == pytest.approx(sum(norms))


def test_an_inspector_that_is_closed_or_forgotten_looks_at_no_optimizer(otel_ml_capture: Capture) -> None:
    gc.collect()
    before = dict(_global_optimizer_pre_hooks)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inspected(net, "wgrad").close()
    inspected(network(), "wgrad", "output")

    gc.collect()
    backward(net)
    optimizer.step()

    assert dict(_global_optimizer_pre_hooks) == before
    assert not otel_ml_capture.points


def test_steps_that_are_left_out_of_the_schedule_are_not_seen_in_the_optimizer(otel_ml_capture: Capture) -> None:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    rules = {"stats": ["max"], "tensors": ["wgrad"], "freq": 2}
    inspector = Inspector(net, {"all": {"layers": LINEAR, "LogTensorStats": rules}})
    for step in range(4):
        otel_ml.set_step(step)
        emptied_at_once(net, optimizer, inspector)
    inspector.close()

    assert {point.step for point in otel_ml_capture.points} == {0, 2}
    assert {point.count for point in otel_ml_capture.points} == {1}


@pytest.mark.feature("M27", "better", "a validation pass is not mixed into the statistics of training")
def test_a_validation_pass_does_not_count_into_a_step_of_training(otel_ml_capture: Capture) -> None:
    def validated(net: torch.nn.Module, optimizer: torch.optim.Optimizer, inspector: Inspector) -> None:
        emptied_first(net, optimizer, inspector)
        validate(net)

    expected = shown(otel_ml_capture, emptied_first, "activation", "output")

    # As trainers do that look whether validation works before they begin.
    found = shown(otel_ml_capture, validated, "activation", "output", before=validate)

    assert found == pytest.approx(expected)


def test_a_model_that_never_learns_is_seen_all_the_same(otel_ml_capture: Capture) -> None:
    net = network()
    inspector = inspected(net, "activation")
    for step in range(2):
        otel_ml.set_step(step)
        with torch.inference_mode():
            net(BATCH)
        inspector.step()
    inspector.close()

    found = {(point.name, point.step): point.value for point in otel_ml_capture.points}
    assert found["inspect/0/activation/max", 1] == 3.0
    assert {step for _, step in found} == {0, 1}


def shown_weights(capture: Capture, step: int) -> dict[str, float]:
    """Return the L1 norms of weights at a step."""
    otel_ml.flush()
    norms = [point for point in capture.points if point.name.endswith("weight/l1_norm") and point.step == step]
    return {point.name.split("/")[1]: point.value for point in norms}


@pytest.mark.parametrize("updates", [1, 3])
def test_weights_are_those_that_the_steps_passes_have_used(otel_ml_capture: Capture, updates: int) -> None:
    net, used = network(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    inspector = inspected(net, "weight")

    for _ in otel_ml.steps(range(2)):
        used.append({name: net[int(name)].weight.detach().abs().sum().item() for name in ("0", "2")})
        for _ in range(updates):
            optimizer.zero_grad()
            backward(net)
            optimizer.step()
        inspector.step()

    assert [shown_weights(otel_ml_capture, step) for step in range(2)] == [pytest.approx(weights) for weights in used]


def test_a_weight_that_no_optimizer_changes_is_shown_too(otel_ml_capture: Capture) -> None:
    net = network()
    optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1)
    inspector = inspected(net, "weight")

    otel_ml.set_step(0)
    before = {name: net[int(name)].weight.detach().abs().sum().item() for name in ("0", "2")}
    backward(net)
    optimizer.step()
    inspector.step()

    assert shown_weights(otel_ml_capture, 0) == pytest.approx(before)


def test_weights_and_the_norm_of_parameters_are_of_one_moment(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False))
    optimizer, norms = torch.optim.SGD(net.parameters(), lr=0.1), Norms(net)
    rules = {"stats": ["l2_norm"], "tensors": ["weight"]}
    inspector = Inspector(net, {"all": {"layers": LINEAR, "LogTensorStats": rules}})

    otel_ml.set_step(0)
    backward(net)
    norms.record_parameters()
    optimizer.step()
    inspector.step()

    otel_ml.flush()
    found = {point.name: point.max for point in otel_ml_capture.points}
    assert found["inspect/0/weight/l2_norm"] == pytest.approx(found["param/norm"])
