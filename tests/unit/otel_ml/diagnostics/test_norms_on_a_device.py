"""Norms of what lies on a GPU: what they cost, and that they are those of the same tensors in memory."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import dynamics
from otel_ml.diagnostics.tensor_statistics import kernel_compilation, kernels, statistics
from otel_ml.diagnostics.tensor_statistics.copy_to_host import Blocks
from otel_ml.testing import Capture, otel_ml_capture
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.diagnostics.kernels_on_fake_cuda import card, until_nothing_is_compiled
from tests.waiting import eventually

__all__ = ["card", "otel_ml_capture"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy warns of what we look for


def tensors(count: int, *dtypes: torch.dtype) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {f"layer.{i}": torch.randn(3 + i % 5, 2).to(dtypes[i % len(dtypes)]) for i in range(count)}


def with_gradients(there: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.nn.Parameter]:
    """Return parameters, whose gradients hold as much."""
    found = {name: torch.nn.Parameter(there(tensor)) for name, tensor in given.items()}
    for name, parameter in found.items():
        parameter.grad = there(given[name])
    return found


def recorded(capture: Capture, axis: str) -> dict[str, tuple[float, ...]]:
    return {
        f"{point.name} at {point.step}": (point.count, point.value, point.min, point.max)
        for point in capture.points
        if point.axis == axis
    }


def assert_the_same(capture: Capture, here: str, there: str) -> None:
    first, second = recorded(capture, here), recorded(capture, there)
    assert first.keys() == second.keys()
    assert first
    for name, values in first.items():
        assert second[name] == pytest.approx(values, rel=1e-6, nan_ok=True), name


def record(parameters: Iterable[tuple[str, Any]], **options: Any) -> None:
    norms = dynamics.Norms(parameters, **options)
    norms.record_gradients()
    norms.record_parameters()


@pytest.mark.parametrize("dtypes", [(torch.bfloat16,), (torch.bfloat16, torch.float32, torch.float16)])
def test_a_step_of_300_tensors_is_12_operations_at_most(
    card: FakeCuda, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch, dtypes: tuple[torch.dtype, ...]
) -> None:
    """Kernels are launched and do nothing: to interpret them for so many takes a minute."""
    monkeypatch.setattr(statistics, "launch", lambda *_: card.launch(lambda: None))
    parameters = with_gradients(card.tensor, tensors(300, *dtypes))
    norms = dynamics.Norms(parameters.items())
    for step in range(3):
        otel_ml.set_step(step)
        for parameter in parameters.values():  # as after `zero_grad(set_to_none=True)`: everything is elsewhere
            parameter.grad = card.tensor(parameter.grad.inner)  # type: ignore[union-attr]
        with card.counted() as asked:
            norms.record_gradients()
            norms.record_parameters()

    assert asked["launches"] == 2 * (len(dtypes) + 1) + 3
    assert asked["launches"] <= 12
    assert asked["copies"] == 3  # addresses of gradients, and what was found of both
    assert asked["events recorded"] == 2
    assert asked["events made"] == asked["pinned"] == 0
    assert card.waits == []
    assert len(otel_ml_capture.values("grad/sum_of_squares")) == 3


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
@pytest.mark.parametrize("options", [{}, {"each": "0"}, {"each": "0", "copies": 1}, {"copies": lambda *_: 2}])
def test_norms_of_a_device_are_those_of_the_same_tensors_in_memory(
    card: FakeCuda, otel_ml_capture: Capture, bad: float | None, options: dict[str, Any]
) -> None:
    given = tensors(12, torch.float32, torch.bfloat16, torch.float64)
    given |= {
        "empty": torch.zeros(0),
        "zeros": torch.zeros(3),
        "scalar": torch.tensor(-2.0),
        "turned": torch.randn(4, 5).t(),
        "cut": torch.randn(6, 6)[:, :3],
        "narrow": torch.tensor([3.0, 0.0]).to(torch.float8_e4m3fn),
    }
    if bad is not None:
        given["bad"] = torch.tensor([1.0, bad])
    for axis, there in {"here": torch.clone, "there": card.tensor}.items():
        otel_ml.set_step(0, axis=axis)
        record(with_gradients(there, given).items(), world_size=2, **options)

    assert_the_same(otel_ml_capture, "here", "there")
    assert card.waits == []


def test_values_are_those_of_the_call_however_far_the_device_is_behind(
    card: FakeCuda, otel_ml_capture: Capture
) -> None:
    parameters = with_gradients(card.tensor, tensors(5, torch.float32))
    norms = dynamics.Norms(parameters.items())
    card.stream.hold()
    for step in range(20):
        otel_ml.set_step(step)
        for parameter in parameters.values():
            parameter.grad = card.tensor(torch.full_like(parameter.inner, step))  # type: ignore[attr-defined]
        norms.record_gradients()
        for parameter in parameters.values():
            assert parameter.grad is not None
            parameter.grad.fill_(1e9)
            parameter.grad = None
    card.stream.release()

    elements = sum(parameter.numel() for parameter in parameters.values())
    assert otel_ml_capture.values("grad/sum_of_squares") == [elements * step**2 for step in range(20)]
    assert otel_ml_capture.values("grad/zeros") == [elements, *[0.0] * 19]
    assert card.waits == []


def test_what_another_stream_computes_is_looked_at_there(card: FakeCuda, otel_ml_capture: Capture) -> None:
    parameters = with_gradients(card.tensor, tensors(5, torch.float32))
    norms = dynamics.Norms(parameters.items())
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for stream in streams:
        stream.hold()  # type: ignore[attr-defined]
    for step in range(6):
        otel_ml.set_step(step)
        with torch.cuda.stream(streams[step % 2]):
            for parameter in parameters.values():
                parameter.grad = torch.full_like(parameter, float(step))
            norms.record_gradients()
    for stream in reversed(streams):
        stream.release()  # type: ignore[attr-defined]

    assert otel_ml_capture.values("grad/abs_max") == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_model_on_two_devices_has_one_norm(card: FakeCuda, otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)
    named = [("a", card.tensor([3.0])), ("b", card.tensor([4.0], device="cuda:1")), ("c", torch.tensor([12.0]))]
    dynamics.Norms(named).record_parameters()

    (norm,) = [point for point in otel_ml_capture.points if point.name == "param/norm"]
    assert (norm.count, norm.max) == (2, 13.0)


def test_each_parameter_keeps_its_name_where_others_come_and_go(card: FakeCuda, otel_ml_capture: Capture) -> None:
    parameters = with_gradients(card.tensor, {name: torch.zeros(2) for name in "abc"})
    norms = dynamics.Norms(parameters.items(), each=".")
    trained = ("ab", "ab", "bc", "bc", "abc")
    for step, names in enumerate(trained):
        otel_ml.set_step(step)
        for number, (name, parameter) in enumerate(parameters.items(), start=1):
            parameter.grad = card.tensor([float(number), 0.0]) if name in names else None
        norms.record_gradients()

    found = {(p.step, p.name[-1]): p.max for p in otel_ml_capture.points if p.name.startswith("grad/norm/")}
    assert found == {(step, name): "_abc".index(name) for step, names in enumerate(trained) for name in names}


def test_shards_of_distributed_tensors_are_looked_at(card: FakeCuda, otel_ml_capture: Capture) -> None:
    cut = SimpleNamespace(is_partial=lambda: False, is_replicate=lambda: False)
    mesh = SimpleNamespace(shape=(4,), size=lambda: 4)

    def shard(values: list[float]) -> Any:
        local = card.tensor(values)
        return SimpleNamespace(placements=(cut,), device_mesh=mesh, to_local=lambda: local)

    parameters = {name: SimpleNamespace(grad=None) for name in ("w", "empty")}
    norms = dynamics.Norms(parameters.items(), world_size=4)
    for step in range(3):
        otel_ml.set_step(step)
        parameters["w"].grad, parameters["empty"].grad = shard([3.0, 4.0 * step]), shard([])
        with card.counted() as asked:
            norms.record_gradients()
        until_nothing_is_compiled()  # of a type that is seen in the first step only

    assert otel_ml_capture.values("grad/sum_of_squares") == [9.0, 25.0, 73.0]
    norm = {point.step: point.max for point in otel_ml_capture.points if point.name == "grad/norm"}
    assert norm == {0: 6.0, 1: 10.0, 2: pytest.approx(2 * math.sqrt(73.0))}
    assert asked["launches"] <= 4


def test_an_infinite_gradient_is_said_with_its_name_and_step_once_it_is_known(
    card: FakeCuda, otel_ml_capture: Capture
) -> None:
    parameters = with_gradients(card.tensor, tensors(4, torch.float32))
    norms = dynamics.Norms(parameters.items())
    card.stream.hold()
    for step in range(4):
        otel_ml.set_step(step)
        if step == 2:
            parameters["layer.3"].grad[1, 1] = math.inf  # type: ignore[index]
        norms.record_gradients()
    assert otel_ml_capture.notices == []
    card.stream.release()

    assert otel_ml_capture.values("grad/nonfinite") == [0.0, 0.0, 1.0, 1.0]
    (notice,) = otel_ml_capture.notices
    assert "'layer.3' is NaN or Inf at step 2" in notice


def test_memory_is_that_of_what_is_on_its_way_however_seldom_it_is_read(
    card: FakeCuda, otel_ml_capture: Capture
) -> None:
    parameters = with_gradients(card.tensor, tensors(5, torch.float32))
    norms = dynamics.Norms(parameters.items())
    for step in range(30):
        otel_ml.set_step(step)
        for parameter in parameters.values():
            parameter.grad = card.tensor(torch.ones_like(parameter.inner))  # type: ignore[attr-defined]
        norms.record_gradients()
        if step == 2:
            pinned, held = card.counts["pinned"], card.allocated

    assert (card.counts["pinned"], card.allocated) == (pinned, held) == (1, held)
    assert len(otel_ml_capture.values("grad/zeros")) == 30


def test_a_device_that_hangs_is_said_once_and_memory_for_it_has_an_end(
    card: FakeCuda, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blocks, "MOST", 6)
    parameters = with_gradients(card.tensor, tensors(3, torch.float32))
    norms = dynamics.Norms(parameters.items())
    card.stream.hold()
    for step in range(40):
        otel_ml.set_step(step)
        norms.record_gradients()

    assert card.counts["pinned"] == 1
    (notice,) = otel_ml_capture.notices
    assert "6 copies behind" in notice
    card.stream.release()
    assert len(otel_ml_capture.values("grad/zeros")) == Blocks.TOGETHER - 1  # one was of addresses


@pytest.mark.parametrize("memory", ["pinned_left", "device_left"])
def test_without_memory_training_goes_on_and_is_not_asked_for_more_at_each_step(
    card: FakeCuda, otel_ml_capture: Capture, memory: str
) -> None:
    parameters = with_gradients(card.tensor, tensors(3, torch.float32))
    norms = dynamics.Norms(parameters.items())
    setattr(card, memory, 0)
    for step in range(3):
        otel_ml.set_step(step)
        norms.record_gradients()
        norms.record_parameters()

    assert otel_ml_capture.notices
    assert all("training goes on" in notice for notice in otel_ml_capture.notices)
    assert otel_ml_capture.points == []


def test_without_triton_operations_of_torch_find_the_same_and_that_is_said_once(
    card: FakeCuda, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("No module named 'triton'")

    monkeypatch.setattr(kernels.fold, "warmup", missing, raising=False)
    given = tensors(6, torch.float32, torch.bfloat16)
    for axis, there in {"here": torch.clone, "there": card.tensor}.items():
        otel_ml.set_step(0, axis=axis)
        record(with_gradients(there, given).items())

    assert_the_same(otel_ml_capture, "here", "there")
    (notice,) = otel_ml_capture.notices
    assert "No module named 'triton'" in notice
    assert card.waits == []


def test_a_kernel_that_cannot_be_compiled_takes_no_other_with_it(card: FakeCuda, otel_ml_capture: Capture) -> None:
    """As a format of the Inspector with an older Triton: norms are computed by kernels all the same."""

    def refused() -> kernel_compilation.Recipe:
        raise RuntimeError("it does not compile")

    device = card.tensor([1.0]).device
    exotic: kernel_compilation.Recipes = [("exotic", refused)]

    assert not kernel_compilation.compile_now(device, exotic)
    parameters = with_gradients(card.tensor, tensors(3, torch.float32))
    norms = dynamics.Norms(parameters.items())
    otel_ml.set_step(0)
    with card.counted() as asked:
        norms.record_gradients()
    assert asked["launches"] == 4  # both kernels, and the copies to and fro
    assert not kernel_compilation.are_compiled(device, exotic)
    assert [notice for notice in otel_ml_capture.notices if "it does not compile" in notice] == otel_ml_capture.notices


def test_no_step_waits_for_the_compiler(
    card: FakeCuda, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that came to the device after `Norms(…)`."""
    may_go_on = threading.Event()
    monkeypatch.setattr(kernels.fold, "warmup", lambda *_, **__: may_go_on.wait(60), raising=False)
    parameters: dict[str, Any] = {"w": SimpleNamespace(grad=None)}
    norms = dynamics.Norms(parameters.items())
    for step in range(2):
        otel_ml.set_step(step)
        parameters["w"].grad = card.tensor([3.0, 4.0])
        norms.record_gradients()
    may_go_on.set()
    eventually(lambda: len(kernel_compilation._compiled) == 2)
    otel_ml.set_step(2)
    with card.counted() as asked:
        norms.record_gradients()

    assert otel_ml_capture.values("grad/sum_of_squares") == [25.0] * 3
    assert asked["launches"] == 4  # both kernels, and the copies to and fro


def test_in_a_captured_graph_nothing_is_recorded_and_the_graph_is_whole(
    card: FakeCuda, otel_ml_capture: Capture
) -> None:
    parameters = with_gradients(card.tensor, tensors(3, torch.float32))
    norms = dynamics.Norms(parameters.items())
    otel_ml.set_step(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        norms.record_gradients()
    graph.replay()

    assert otel_ml_capture.points == []
    (notice,) = otel_ml_capture.notices
    assert "outside of the captured region" in notice


def test_parameters_are_recorded_at_the_steps_that_every_divides(card: FakeCuda, otel_ml_capture: Capture) -> None:
    parameters = with_gradients(card.tensor, tensors(3, torch.float32))
    norms = dynamics.Norms(parameters.items(), every=10)
    for step in range(995, 1012):
        otel_ml.set_step(step)
        norms.record_gradients()
        norms.record_parameters()

    def steps() -> dict[str, list[int | None]]:
        points = otel_ml_capture.points
        return {kind: sorted(p.step or 0 for p in points if p.name == f"{kind}/zeros") for kind in ("grad", "param")}

    expected = {"grad": [*range(995, 1012)], "param": [1000, 1010]}
    eventually(lambda: steps() == expected)
    with pytest.raises(otel_ml.ConfigError, match=r"every: .* got 0"):
        dynamics.Norms([], every=0)


def test_a_model_that_moves_between_two_steps_is_looked_at_where_it_is(
    card: FakeCuda, otel_ml_capture: Capture
) -> None:
    parameters = {"w": SimpleNamespace(grad=None)}
    norms = dynamics.Norms(parameters.items(), each="w")
    places = (torch.tensor, card.tensor, card.tensor, lambda values: card.tensor(values, device="cuda:1"), torch.tensor)
    for step, place in enumerate(places):
        otel_ml.set_step(step)
        parameters["w"].grad = place([3.0, 4.0 * step])
        norms.record_gradients()

    squares = [9.0 + 16.0 * step**2 for step in range(5)]
    assert otel_ml_capture.values("grad/sum_of_squares") == pytest.approx(squares)


def test_tokens_of_all_experts_are_one_copy(card: FakeCuda, otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)
    tokens = card.tensor(list(range(64)))
    with card.counted() as asked:
        dynamics.record_routing(tokens, layer=3)
    tokens.zero_()

    assert asked["copies"] == 1
    assert asked["launches"] <= 2
    assert otel_ml_capture.values("moe/tokens/layer_3/expert_63") == [63.0]
    assert card.waits == []
