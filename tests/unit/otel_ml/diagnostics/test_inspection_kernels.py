"""An inspected step of a GPU: a handful of launches, and the values that operations of torch give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics.inspection import Inspector
from otel_ml.diagnostics.inspection.fp8 import FORMATS, fp8_job_for
from otel_ml.diagnostics.inspection.statistics import STATISTICS
from otel_ml.diagnostics.tensor_statistics import tensor_batches
from otel_ml.diagnostics.tensor_statistics.copy_to_host import Blocks
from otel_ml.diagnostics.tensor_statistics.kernel_compilation import Recipe
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import SUMMARY, recipe_of
from otel_ml.diagnostics.tensor_statistics.tensor_batches import TensorBatches
from otel_ml.testing import Capture, otel_ml_capture
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.diagnostics import kernels_on_fake_cuda
from tests.unit.otel_ml.diagnostics.kernels_on_fake_cuda import card
from tests.waiting import eventually

__all__ = ["card", "otel_ml_capture"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy warns of what we look for

PLAIN = [*STATISTICS]
FP8 = ["underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse"]


@pytest.fixture
def cuda(card: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    monkeypatch.setattr(tensor_batches, "launch", lambda *given: kernels_on_fake_cuda._launch(card, *given))
    return card


def config(**tensors: list[str]) -> dict[str, Any]:
    """Return what is asked of each tensor, plain statistics and those of FP8."""
    fp8 = [{"tensor": name, "stats": [s for s in stats if s.endswith(tuple(FP8))]} for name, stats in tensors.items()]
    plain = [
        {"tensor": name, "stats": [s for s in stats if not s.endswith(tuple(FP8))]} for name, stats in tensors.items()
    ]
    features = {
        "LogTensorStats": {"tensors_struct": [one for one in plain if one["stats"]]},
        "LogFp8TensorStats": {"tensors_struct": [one for one in fp8 if one["stats"]]},
    }
    used = {name: options for name, options in features.items() if options["tensors_struct"]}
    return {"all": {"layers": {"layer_name_regex_pattern": ".*"}, "transformer_engine": used}}


class Passes:
    """A pass forward and back through layers; autograd has no such device, so its part in the latter is played here."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.net = net
        self.outputs: list[torch.Tensor] = []
        for layer in net.modules():
            if layer is not net:
                layer.register_forward_hook(lambda _, __, output: self.outputs.append(output))

    def __call__(self, x: torch.Tensor, gradients: list[torch.Tensor]) -> None:
        self.net(x)
        for output, gradient in zip(reversed(self.outputs), gradients, strict=True):
            for hook in (getattr(output, "_backward_hooks", None) or {}).values():
                hook(gradient)
        self.outputs.clear()


def shown(captured: Capture, step: int) -> dict[str, tuple[float, float, float, int, str]]:
    """Return what a step has of each statistic: its mean, ends, records and reduction."""
    return {
        point.name: (point.value / point.count, point.min, point.max, point.count, point.reduction)
        for point in captured.points
        if point.name.startswith("inspect/") and point.step == step
    }


def assert_alike(captured: Capture) -> None:
    """Hold what the card showed in step 1 against what the host did in step 0, when it has come."""
    expected = shown(captured, 0)
    assert expected
    otel_ml.set_step(2)  # what operations have found goes to the host at the end of a step
    eventually(lambda: len(shown(captured, 1)) >= len(expected))
    found = shown(captured, 1)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name][-2:] == values[-2:], name
        largest = max(map(abs, values[1:3]))  # records of opposite signs, as those of a norm, leave little of their sum
        assert found[name][:3] == pytest.approx(values[:3], rel=1e-5, abs=1e-6 * largest, nan_ok=True), name


def test_a_step_of_24_layers_is_a_handful_of_operations(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    net = cuda.module(torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(24)]))
    five = ["min", "max", "mean", "std", "l2_norm"]
    asked = {"weight": five, "activation": [*five, "underflows%", "mse"], "gradient": five}
    passes = Passes(net)
    x, gradients = cuda.tensor(torch.randn(4, 8)), [cuda.tensor(torch.randn(4, 8)) for _ in range(24)]
    with cuda.counted() as bare:
        passes(x, gradients)
    inspector = Inspector(net, config(**asked))
    for step in range(2):
        otel_ml.set_step(step)
        with cuda.counted() as watched:
            passes(x, gradients)
            inspector.step()
        kernels_and_copies = watched["launches"] - bare["launches"]
        assert kernels_and_copies + watched["events recorded"] <= 8
        assert watched["operations"] - bare["operations"] <= 10  # of torch, views and allocations among them

    assert cuda.waits == []
    assert eventually(lambda: len(shown(otel_ml_capture, 1))) == 24 * (3 * 5 + 2)


def test_containers_cost_no_launches_of_their_own(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    """What a `Sequential` is given is what its first layer is given, and its output that of its last one."""
    blocks = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8)) for _ in range(4)]
    net = cuda.module(torch.nn.Sequential(*blocks))
    passes = Passes(net)
    x, gradients = cuda.tensor(torch.randn(4, 8)), [cuda.tensor(torch.randn(4, 8)) for _ in range(16)]
    gradients[0::4] = gradients[1::4]  # of a block that of its last layer
    with cuda.counted() as bare:
        passes(x, gradients)
    inspector = Inspector(net, config(activation=["max", "mse"], gradient=["max"]))
    otel_ml.set_step(0)
    with cuda.counted() as watched:
        passes(x, gradients)
        inspector.step()

    assert watched["launches"] - bare["launches"] + watched["events recorded"] <= 8
    found = eventually(lambda: len(shown(otel_ml_capture, 0)) == 16 * 3 and shown(otel_ml_capture, 0))
    for place in range(4):
        for name, layer in (("activation/max", 0), ("activation/mse", 0), ("gradient/max", 2)):
            assert found[f"inspect/{place}/{name}"] == found[f"inspect/{place}.{layer}/{name}"]


def played(net: torch.nn.Module, asked: dict[str, Any], batches: list[Any], gradients: list[list[Any]]) -> None:
    """Have a step of micro-batches inspected."""
    inspector, passes = Inspector(net, asked), Passes(net)
    for batch, gradient in zip(batches, gradients, strict=True):
        passes(batch, gradient)
    inspector.step()
    inspector.close()


RECIPES = ["", "mxfp8_", "fp8_block_scaling_", "nvfp4_", "fp8_delayed_scaling_"]


def test_formats_of_one_shape_are_one_kernel() -> None:
    """Their numbers are told at the launch: what is compiled for one is launched as it is for the other."""
    jobs = [job for kind in FORMATS if (job := fp8_job_for("mxfp8", kind)) is not None]

    assert len({*jobs}) == 2
    assert len({id(recipe_of(job, 0, torch.device("cpu"))) for job in jobs}) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_kernels_show_what_operations_do(otel_ml_capture: Capture, cuda: FakeCuda, dtype: torch.dtype) -> None:
    stats = [*PLAIN, *(f"{recipe}{stat}" for recipe in RECIPES for stat in FP8), "max_blockwise_dynamic_range"]
    asked = config(weight=stats, activation=stats, output=stats, gradient=stats)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(33, 20), torch.nn.GELU(), torch.nn.Linear(20, 4)).to(dtype)
    batches = [(torch.randn(rows, 33) * 10 ** torch.empty(33).uniform_(-4, 2)).to(dtype) for rows in (5, 70)]
    gradients = [[(torch.randn(len(batch), wide) * 1e-3).to(dtype) for wide in (4, 20, 20)] for batch in batches]

    otel_ml.set_step(0)
    played(net, asked, batches, gradients)
    otel_ml.set_step(1)
    on_card = [[cuda.tensor(one) for one in each] for each in gradients]
    played(cuda.module(net), asked, [cuda.tensor(batch) for batch in batches], on_card)

    assert_alike(otel_ml_capture)
    assert cuda.waits == []


class InPlace(torch.nn.Module):
    """Layers whose inputs and outputs are written over as soon as they have been seen."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.second = torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x * 1.0
        with torch.no_grad():
            found = self.norm(self.first(given))
            given.zero_()
            return self.second(found)


def test_what_is_written_over_after_the_call_is_shown_as_it_was(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    torch.manual_seed(0)
    net, batch = InPlace(), torch.randn(3, 4)
    torch.nn.init.ones_(net.norm.bias)
    asked = config(activation=[*PLAIN, "mse"], output=PLAIN)
    for step, there in enumerate((False, True)):
        otel_ml.set_step(step)
        if there:
            cuda.stream.hold()
        inspector = Inspector(cuda.module(net) if there else net, asked)
        net(cuda.tensor(batch) if there else batch)
        inspector.step()
        inspector.close()
    cuda.stream.release()

    assert_alike(otel_ml_capture)


def test_an_input_that_is_written_over_against_autograds_rule_is_lost_once_and_said(
    otel_ml_capture: Capture, cuda: FakeCuda
) -> None:
    class Careless(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = x * 1.0
            found = self.layer(given)
            given.zero_()  # a backward pass would fail
            return found

    net = cuda.module(Careless())
    inspector = Inspector(net, config(activation=["max"]))
    for step in range(2):
        otel_ml.set_step(step)
        net(cuda.tensor([[3.0, 1.0]]))
        inspector.step()

    assert eventually(lambda: shown(otel_ml_capture, 1))["inspect/layer/activation/max"][0] == 3.0
    assert shown(otel_ml_capture, 0) == {}
    assert any("written over" in notice for notice in otel_ml_capture.notices)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 0.0])
def test_elements_that_are_no_numbers_are_not_hidden(otel_ml_capture: Capture, cuda: FakeCuda, value: float) -> None:
    torch.manual_seed(0)
    stats = [*PLAIN, *(f"{recipe}{stat}" for recipe in RECIPES[:4] for stat in FP8)]
    batch = torch.randn(40, 40)
    batch[3, 5] = value
    if not value:
        batch.zero_()
    net = torch.nn.Sequential(torch.nn.Identity())
    for step, given in enumerate((batch, cuda.tensor(batch))):
        otel_ml.set_step(step)
        net.compiled_for = torch.nn.Parameter(given[:1].detach())
        inspector = Inspector(net, config(activation=stats))
        net(given)
        inspector.step()
        inspector.close()

    assert_alike(otel_ml_capture)


def test_tensors_with_gaps_and_without_elements_are_shown_too(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    torch.manual_seed(0)
    whole = torch.randn(6, 70)
    views = [lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:2].expand(5, 70), lambda x: x[:0], lambda x: x[1:, 3:]]
    net = torch.nn.Sequential(torch.nn.Identity())
    for step, there in enumerate((whole, cuda.tensor(whole))):
        otel_ml.set_step(step)
        net.compiled_for = torch.nn.Parameter(there[:1].detach())
        inspector = Inspector(net, config(activation=[*PLAIN, "mse", "mxfp8_mse"]))
        for view in views:
            net(view(there))
        inspector.step()
        inspector.close()

    assert_alike(otel_ml_capture)


def test_gradients_wait_for_others_only_as_long_as_little_memory_is_held(
    otel_ml_capture: Capture, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_batches, "HELD_BYTES", 1000)
    net = cuda.module(torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(8)]))
    inspector, passes = Inspector(net, config(gradient=["max"])), Passes(net)
    otel_ml.set_step(0)
    x, before = cuda.tensor(torch.randn(4, 8)), cuda.allocated
    passes(x, [cuda.tensor(torch.randn(10, 8)) for _ in range(8)])  # 320 bytes each
    held = cuda.allocated - before
    inspector.step()

    assert held <= 512 * 4 + 3 * 2**20 // 2  # three of them, and what kernels write
    assert eventually(lambda: len(shown(otel_ml_capture, 0))) == 8


def test_what_no_kernel_has_looked_at_is_not_shown_though_there_was_more_room_made_for_it(
    card: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(recipe: Recipe, programs: int, *arguments: Any) -> None:
        if is_failing and recipe.kernel.__name__ == "summarize":
            raise RuntimeError("out of resources")
        kernels_on_fake_cuda._launch(card, recipe, programs, *arguments)

    is_failing = False
    monkeypatch.setattr(tensor_batches, "launch", launch)
    monkeypatch.setattr(tensor_batches, "_ROWS", 1)  # a launch holds many tensors
    batches = TensorBatches(torch.cuda.current_stream(), Blocks())
    tensors = [card.tensor([float(owner)]) for owner in range(8)]
    for owner in (0, 1, 2):
        batches.see(tensors[owner], (SUMMARY,), (owner,), stays=True)
    batches.launch()
    is_failing = True
    for owner in (3, 4, 5, 6, 7):
        batches.see(tensors[owner], (SUMMARY,), (owner,), stays=True)
    with pytest.raises(RuntimeError, match="out of resources"):
        batches.launch()

    found = batches.take()

    assert [one.owner for _, seen in found for one in seen] == [0, 1, 2]
    assert [arrival.numbers()[0] for arrival, _ in found[:1]] == [0.0]


def test_what_could_not_be_added_up_is_not_shown_with_numbers_of_what_came_later(
    card: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(recipe: Recipe, programs: int, *arguments: Any) -> None:
        if is_failing and recipe.kernel.__name__ == "fold":
            raise RuntimeError("out of resources")
        kernels_on_fake_cuda._launch(card, recipe, programs, *arguments)

    is_failing = True
    monkeypatch.setattr(tensor_batches, "launch", launch)
    batches = TensorBatches(torch.cuda.current_stream(), Blocks())
    batches.see(card.tensor([5.0]), (SUMMARY,), (0,), stays=False)
    with pytest.raises(RuntimeError, match="out of resources"):
        batches.take()
    is_failing = False
    batches.see(card.tensor([7.0]), (SUMMARY,), (1,), stays=False)

    ((arrival, seen),) = batches.take()

    assert [(one.owner, arrival.numbers()[8 * one.rows[SUMMARY]]) for one in seen] == [(1, 7.0)]


def test_layers_are_not_listened_to_in_steps_that_are_left_out(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(3)])
    options = {"stats": ["max"], "tensors": ["activation", "gradient"], "freq": 10}
    inspector = Inspector(net, {"all": {"layers": {"layer_name_regex_pattern": ".*"}, "LogTensorStats": options}})
    listening = []
    for step in range(21):
        otel_ml.set_step(step)
        net(torch.ones(1, 2)).sum().backward()
        listening.append(any(layer._forward_hooks or layer._forward_pre_hooks for layer in net))
        inspector.step()

    assert [step for step, is_so in enumerate(listening) if is_so] == [0, 10, 20]
    assert {point.step for point in otel_ml_capture.points if point.name.startswith("inspect/")} == {0, 10, 20}
