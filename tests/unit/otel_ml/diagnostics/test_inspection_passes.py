"""Each pass of the program through a layer counts once, however the layer is called and computed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import otel_ml
from otel_ml.diagnostics.inspection import Inspector
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]

TENSORS = ["weight", "activation", "output", "gradient", "wgrad", "dgrad"]


class Block(torch.nn.Module):
    """As models of Hugging Face call their layers: with names."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        self.act = torch.nn.GELU()
        self.fc2 = torch.nn.Linear(6, 4)

    def forward(self, hidden_states: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.fc2(input=self.act(self.fc1(hidden_states))) * scale


class Net(torch.nn.Module):
    """Blocks that are called as `way` says."""

    def __init__(self, way: Callable[[Block, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = torch.nn.ModuleList([Block(), Block()])
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.way(block, x)  # type: ignore[arg-type]
        return x


def directly(block: Block, x: torch.Tensor) -> torch.Tensor:
    return block(x)


def again(block: Block, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=False)


def again_reentrant(block: Block, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(block, x, use_reentrant=True)


def config(layers: str, tensors: list[str], *stats: str, **options: Any) -> dict[str, Any]:
    rules = {"stats": list(stats), "tensors": tensors, **options}
    return {"section": {"layers": {"layer_name_regex_pattern": layers}, "LogTensorStats": rules}}


def shown(captured: Capture) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for point in captured.points:
        found.setdefault(point.name, []).append(point.value / point.count)
    return found


def trained(net: torch.nn.Module) -> list[torch.Tensor]:
    batch = torch.linspace(-1.0, 2.0, 12).reshape(3, 4).requires_grad_()
    output = net(batch)
    output.square().sum().backward()
    return [output, batch.grad, *(parameter.grad for parameter in net.parameters())]  # type: ignore[list-item]


@pytest.mark.feature("M27", "better", "activations count once under activation checkpointing, gradients too")
@pytest.mark.parametrize("way", [again, again_reentrant])
def test_what_a_checkpoint_computes_again_counts_once(otel_ml_capture: Capture, way: Any) -> None:
    for step, how in enumerate((directly, way)):
        net = Net(how)
        inspector = Inspector(net, config(".*", TENSORS, "l1_norm", "max"))
        otel_ml.set_step(step)
        trained(net)
        inspector.step()
        inspector.close()

    found = shown(otel_ml_capture)
    assert {name.split("/")[2] for name in found} == set(TENSORS)
    for name, (expected, value) in found.items():
        assert value == pytest.approx(expected, rel=1e-5), name
    assert otel_ml_capture.notices == []


@pytest.mark.parametrize("way", [directly, again, again_reentrant])
def test_inspection_changes_neither_outputs_nor_gradients(way: Any) -> None:
    quiet, watched = Net(way), Net(way)
    Inspector(watched, config(".*", TENSORS, "max"))

    for mine, theirs in zip(trained(quiet), trained(watched), strict=True):
        assert torch.equal(mine, theirs)


def test_a_layer_that_is_called_with_names_is_seen_as_one_that_is_not(otel_ml_capture: Capture) -> None:
    for step, way in enumerate((directly, lambda block, x: block(scale=1.0, hidden_states=x))):
        net = Net(way)
        inspector = Inspector(net, config(".*", ["activation", "dgrad"], "l1_norm"))
        otel_ml.set_step(step)
        trained(net)
        inspector.step()
        inspector.close()

    found = shown(otel_ml_capture)
    assert {"inspect/blocks.0/dgrad/l1_norm", "inspect/blocks.1.fc2/activation/l1_norm"} <= set(found)
    for name, (by_position, by_name) in found.items():
        assert by_name == pytest.approx(by_position), name


def test_the_activation_of_a_layer_that_works_in_place_is_what_it_was_given(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU(inplace=True))
    tensors = ["activation", "output", "gradient", "dgrad"]
    inspector = Inspector(net, config("1", tensors, "l1_norm"))
    otel_ml.set_step(0)
    net(torch.tensor([-3.0, 2.0], requires_grad=True) * 1.0).square().mean().backward()
    inspector.step()

    norms = dict(zip(tensors, (5.0, 2.0, 2.0, 2.0), strict=True))
    assert {tensor: otel_ml_capture.values(f"inspect/1/{tensor}/l1_norm") for tensor in tensors} == {
        tensor: [norm] for tensor, norm in norms.items()
    }


def test_layers_may_take_and_return_several_things(otel_ml_capture: Capture) -> None:
    class Several(torch.nn.Module):
        def forward(self, mask: None, pair: list[torch.Tensor]) -> dict[str, Any]:
            return {"loss": None, "hidden": (pair[0] * 2, pair[1])}

    net = torch.nn.Sequential()
    net.add_module("several", Several())
    inspector = Inspector(net, config("several", ["activation", "output", "gradient"], "max"))
    otel_ml.set_step(0)
    given = torch.tensor([3.0], requires_grad=True)
    (net.several(None, [given, torch.ones(1)])["hidden"][0] * 5).backward()  # type: ignore[operator]
    inspector.step()

    tensors = {"activation": 3.0, "output": 6.0, "gradient": 5.0}
    assert shown(otel_ml_capture) == {f"inspect/several/{name}/max": [value] for name, value in tensors.items()}


def test_a_pass_without_gradients_is_left_alone_where_gradients_are_asked_for(otel_ml_capture: Capture) -> None:
    net = Net(directly)
    inspector = Inspector(net, config(".*", ["dgrad", "gradient", "output"], "max"))
    otel_ml.set_step(0)
    with torch.no_grad():
        net(torch.ones(1, 4, requires_grad=True))
    inspector.step()

    assert {name.split("/")[2] for name in shown(otel_ml_capture)} == {"output"}
    assert otel_ml_capture.notices == []


def test_attention_to_itself_takes_the_same_way_where_its_input_is_watched(otel_ml_capture: Capture) -> None:
    """Torch asks whether query, key and value are one object."""
    attention = torch.nn.MultiheadAttention(4, 2)
    net = torch.nn.Sequential()
    net.add_module("attention", attention)
    inspector = Inspector(net, config("attention", ["dgrad"], "l1_norm"))
    otel_ml.set_step(0)
    given = torch.linspace(-1.0, 1.0, 12).reshape(3, 4).requires_grad_()
    attention(given, given, given)[0].square().sum().backward()
    inspector.step()

    assert given.grad is not None
    assert shown(otel_ml_capture) == {"inspect/attention/dgrad/l1_norm": [pytest.approx(given.grad.abs().sum().item())]}


def test_the_schedule_is_that_of_the_pass_in_whatever_thread_autograd_goes_back(otel_ml_capture: Capture) -> None:
    """Autograd has a thread of its own for each device, and a block `step()` is of the thread that entered it."""
    net = Net(again_reentrant)
    inspector = Inspector(net, config("blocks.0.fc1", ["gradient", "output"], "max", start_step=7, end_step=7))
    for step in (2, 7):
        with otel_ml.step(step):
            output = net(torch.ones(1, 4, requires_grad=True))
            back = threading.Thread(target=output.sum().backward)
            back.start()
            back.join()
            inspector.step()

    seen = {(point.name, point.step) for point in otel_ml_capture.points if point.name.startswith("inspect/")}
    assert seen == {(f"inspect/blocks.0.fc1/{tensor}/max", 7) for tensor in ("gradient", "output")}


def test_codes_of_a_quantized_weight_are_not_taken_for_its_numbers(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    net[1].weight = torch.nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    inspector = Inspector(net, config(".*", ["weight"], "max"))
    inspector.step()

    assert set(shown(otel_ml_capture)) == {"inspect/0/weight/max"}


def test_a_weight_whose_memory_was_given_back_is_left_out(otel_ml_capture: Capture) -> None:
    """As FSDP1 leaves it when a pass is over; to read there ended the process."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 2))
    flat = torch.zeros(20)
    flattened: Any = net[0]
    del flattened.weight
    flattened.weight = flat[12:].view(2, 4)
    inspector = Inspector(net, config(".*", ["weight"], "max"))
    flat.untyped_storage().resize_(0)
    for step in range(2):
        otel_ml.set_step(step)
        inspector.step()

    assert set(shown(otel_ml_capture)) == {"inspect/1/weight/max"}
    (notice,) = otel_ml_capture.notices
    assert "weight of '0'" in notice


def test_a_layer_that_returns_what_only_looks_like_a_tensor_hurts_no_pass(otel_ml_capture: Capture) -> None:
    class Lookalike:
        requires_grad = True

        def detach(self) -> Lookalike:
            return self

    class Odd(torch.nn.Module):
        def forward(self, _: object) -> Lookalike:
            return Lookalike()

    net = torch.nn.Sequential()
    net.add_module("odd", Odd())
    inspector = Inspector(net, config("odd", ["activation", "output", "gradient", "dgrad"], "max"))
    otel_ml.set_step(0)

    assert isinstance(net(Lookalike()), Lookalike)
    inspector.step()

    assert shown(otel_ml_capture) == {}
    assert any("AttributeError" in notice for notice in otel_ml_capture.notices)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of torch's compiler itself
def test_a_compiled_model_is_seen_and_is_not_compiled_again_at_every_step(otel_ml_capture: Capture) -> None:
    net = Net(directly)
    compiled = torch.compile(net, backend="eager")
    inspector = Inspector(net, config(r"blocks\.0", ["activation", "output", "gradient", "dgrad"], "l1_norm"))
    batches = [torch.randn(5, 4, requires_grad=True) for _ in range(4)]
    graphs = []
    for step, batch in enumerate(batches):
        otel_ml.set_step(step)
        compiled(batch).square().mean().backward()
        inspector.step()
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    assert len(set(graphs)) == 1
    norms = [float(batch.detach().abs().sum()) for batch in batches]
    assert otel_ml_capture.values("inspect/blocks.0/activation/l1_norm") == pytest.approx(norms)
    assert len(otel_ml_capture.values("inspect/blocks.0/dgrad/l1_norm")) == len(batches)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of torch's compiler itself
@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_compiled_before_its_first_step_is_seen_at_it(otel_ml_capture: Capture, is_whole: bool) -> None:
    """Hooks that come after the compiler are not called."""
    torch._dynamo.reset()
    net = Net(directly)
    if not is_whole:
        net.blocks[0].compile(backend="eager")
    called = torch.compile(net, backend="eager") if is_whole else net
    inspector = Inspector(net, config(r"blocks\.0\.fc1", ["activation"], "max", freq=3, start_step=1))
    for step in range(7):
        otel_ml.set_step(step)
        called(torch.full((1, 4), float(step), requires_grad=True)).sum().backward()
        inspector.step()

    assert otel_ml_capture.values("inspect/blocks.0.fc1/activation/max") == [3.0, 6.0]
