"""Norms, counts, rates, validation and layers, as they stand in the run."""

from __future__ import annotations

import json
import math
from enum import Enum
from pathlib import Path

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import dynamics, small_tensors
from otel_ml.testing import Capture, otel_ml_capture
from tests.e2e.jobs import the_run_in

__all__ = ["otel_ml_capture"]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))


def trained(net: torch.nn.Module) -> torch.nn.Module:
    net(torch.ones(5, 4)).square().sum().backward()
    return net


@pytest.mark.feature("M18", "better", "global and per-parameter norms without a collective or synchronization")
@pytest.mark.feature("I13", "yes", "gradients of a model are watched")
@pytest.mark.feature(
    "M19", "better", "pooled validation loss; perplexity of the pooled loss, not a mean of perplexities"
)
def test_a_run_shows_the_norms_that_torch_computes(tmp_path: Path) -> None:
    net = trained(model())
    norms = dynamics.Norms(net, each=r"weight")

    with otel_ml.init("norms", exporters="jsonl"):
        otel_ml.set_step(0)
        norms.record_gradients()
        norms.record_parameters()
        dynamics.record_validation_part(1.0, weight=1)
        dynamics.record_validation_part(2.0, weight=3)
        otel_ml.shutdown(timeout=60.0)

    run = the_run_in(tmp_path / "otel-ml-runs")
    found = {name: values[0] for name, (_, values) in otel_ml.read(run).items()}
    gradients = [parameter.grad.flatten() for parameter in net.parameters() if parameter.grad is not None]
    whole = torch.cat(gradients)
    assert found["grad/norm"] == pytest.approx(whole.norm().item(), rel=1e-6)
    assert found["grad/sum_of_squares"] == pytest.approx(whole.square().sum().item(), rel=1e-6)
    assert found["grad/mean_square"] == pytest.approx(whole.square().mean().item(), rel=1e-6)
    assert found["grad/abs_max"] == pytest.approx(whole.abs().max().item())
    assert found["grad/zeros"] == (whole == 0).sum().item()
    assert found["grad/zero_fraction"] == pytest.approx((whole == 0).float().mean().item())
    assert found["grad/norm/0.weight"] == pytest.approx(net[0].weight.grad.norm().item(), rel=1e-6)  # type: ignore[union-attr,index]
    whole = torch.cat([parameter.flatten() for parameter in net.parameters()])
    assert found["param/norm"] == pytest.approx(whole.norm().item(), rel=1e-6)
    assert "grad/norm/0.bias" not in found
    assert found["val/loss"] == 1.75
    assert dynamics.perplexity_of(run) == ([0], [math.exp(1.75)])


@pytest.mark.parametrize("each", [None, "weight"])
def test_a_sparse_gradient_is_the_dense_one_that_it_stands_for(otel_ml_capture: Capture, each: str | None) -> None:
    embedding = torch.nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 2, 2])).square().sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.is_sparse
    dense = embedding.weight.grad.to_dense()

    otel_ml.set_step(0)
    dynamics.Norms(embedding, each=each, world_size=2).record_gradients()

    found = {point.name: point for point in otel_ml_capture.points}
    assert found["grad/norm"].max == pytest.approx(dense.norm().item())
    assert found["grad/abs_max"].value == pytest.approx(dense.abs().max().item())
    assert found["grad/zeros"].value == (dense == 0).sum().item() / 2
    assert otel_ml_capture.notices == []


def test_copies_on_other_ranks_are_counted_once(otel_ml_capture: Capture) -> None:
    net = trained(model())
    otel_ml.set_step(0)

    for rank in range(4):
        with otel_ml_capture.rank(rank):
            dynamics.Norms(net, world_size=4).record_gradients()

    whole = torch.cat([parameter.grad.flatten() for parameter in net.parameters() if parameter.grad is not None])
    squares = [point.value for point in otel_ml_capture.points if point.name == "grad/sum_of_squares"]
    assert sum(squares) == pytest.approx(whole.square().sum().item(), rel=1e-6)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_equal_copies_are_recorded_as_those_that_are_counted_one_by_one(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch, *, bad: float | None, is_compiled: bool
) -> None:
    net = trained(model())
    net[0].bias.grad[1] = 0.0  # type: ignore[union-attr,index]
    if bad is not None:
        net[2].bias.grad[0] = bad  # type: ignore[union-attr,index]
    if not is_compiled:
        monkeypatch.setattr(small_tensors, "code_for_tensors", lambda: None)
    for step, copies in enumerate((2, lambda _name, _tensor: 2)):
        otel_ml.set_step(step)
        dynamics.Norms(net, copies=copies, world_size=4).record_gradients()

    names = {point.name for point in otel_ml_capture.points}
    assert len(names) == 7
    for name in names:
        alike, one_by_one = (point for point in otel_ml_capture.points if point.name == name)
        assert (alike.count, alike.max) == (one_by_one.count, pytest.approx(one_by_one.max, nan_ok=True))
        assert alike.value == pytest.approx(one_by_one.value, nan_ok=True)


def test_shards_on_other_ranks_add_up(otel_ml_capture: Capture) -> None:
    shards = [torch.nn.Parameter(torch.full((size,), 2.0)) for size in (3, 5, 0)]
    otel_ml.set_step(0)

    for rank, shard in enumerate(shards):
        with otel_ml_capture.rank(rank):
            dynamics.Norms([("w", shard)], copies=1, world_size=3, each="w").record_parameters()

    for name in ("param/sum_of_squares", "param/sum_of_squares/w"):
        points = [point for point in otel_ml_capture.points if point.name == name]
        assert sum(point.value for point in points) == pytest.approx(32.0)
    ranks = {point.rank for point in otel_ml_capture.points if point.name == "param/norm"}
    assert ranks == {0, 1, 2}  # an empty shard is part of the norm
    assert {point.rank for point in otel_ml_capture.points if point.name == "param/abs_max"} == {0, 1}


def test_a_stage_without_gradients_is_a_part_of_0_of_the_norm(tmp_path: Path) -> None:
    trains, frozen = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    trains.grad = torch.full((4,), 2.0)

    with otel_ml.init("stages", exporters="jsonl"):
        otel_ml.set_step(0)
        for stage in (trains, frozen):
            dynamics.Norms([("w", stage)], copies=1, world_size=2).record_gradients()
        otel_ml.shutdown(timeout=60.0)

    run = the_run_in(tmp_path / "otel-ml-runs")
    found = {name: values[0] for name, (_, values) in otel_ml.read(run).items()}
    assert found["grad/norm"] == 4.0
    assert found["grad/sum_of_squares"] == 16.0
    assert found["grad/nonfinite"] == 0.0


@pytest.mark.parametrize(("copies", "world_size"), [(None, 1), (1, 1), (None, 4)])
def test_where_nobody_can_have_a_gradient_nothing_is_recorded(
    otel_ml_capture: Capture, copies: int | None, world_size: int
) -> None:
    otel_ml.set_step(0)

    dynamics.Norms(model(), copies=copies, world_size=world_size).record_gradients()

    assert otel_ml_capture.points == []


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool])
@pytest.mark.parametrize("each", [None, "."])
def test_a_quantized_parameter_is_left_out_of_the_norm_and_said_once(
    otel_ml_capture: Capture, dtype: torch.dtype, each: str | None
) -> None:
    base = torch.nn.Parameter(torch.ones(3, dtype=dtype), requires_grad=False)
    named = [("base", base), ("head", base), ("lora", torch.nn.Parameter(torch.full((4,), 2.0)))]
    norms = dynamics.Norms(named, each=each)
    for step in range(2):
        otel_ml.set_step(step)
        norms.record_parameters()

    assert otel_ml_capture.values("param/sum_of_squares") == [16.0, 16.0]
    assert {point.max for point in otel_ml_capture.points if point.name == "param/norm"} == {4.0}
    (notice,) = otel_ml_capture.notices
    assert f"'base' leaves it out, and any like it: it holds {dtype}" in notice


def test_a_parameter_of_8_bits_counts_as_the_numbers_it_holds(otel_ml_capture: Capture) -> None:
    narrow = torch.nn.Parameter(torch.tensor([3.0, 0.0, -4.0]).to(torch.float8_e4m3fn), requires_grad=False)
    otel_ml.set_step(0)

    dynamics.Norms([("w", narrow), ("b", torch.nn.Parameter(torch.zeros(1)))]).record_parameters()

    assert {point.max for point in otel_ml_capture.points if point.name == "param/norm"} == {5.0}
    assert otel_ml_capture.values("param/abs_max") == [4.0]
    assert otel_ml_capture.values("param/zeros") == [2.0]
    assert otel_ml_capture.notices == []


@pytest.mark.feature(
    "N33", "better", "names the first tensor and step, without waiting for the device; the rest is counted"
)
def test_an_infinite_gradient_is_said_once_with_its_tensor_and_step(otel_ml_capture: Capture) -> None:
    net = trained(model())
    net[2].bias.grad[0] = math.inf  # type: ignore[union-attr,index]
    norms = dynamics.Norms(net)
    for step in (3, 4):
        otel_ml.set_step(step)
        norms.record_gradients()

    assert otel_ml_capture.values("grad/nonfinite") == [1.0, 1.0]
    (notice,) = otel_ml_capture.notices
    assert "'2.bias'" in notice
    assert "step 3" in notice


def test_a_parameter_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(otel_ml.ConfigError, match=r"fits no parameter.*0\.weight"):
        dynamics.Norms(model(), each="attention")
    with pytest.raises(otel_ml.ConfigError, match="regular expression"):
        dynamics.Norms(model(), each="(")


@pytest.mark.feature(
    "M12", "better", "skipped and NaN iterations, also of device tensors; average loss of the good ones"
)
def test_skipped_and_nan_iterations_are_counted_and_leave_the_average_alone(otel_ml_capture: Capture) -> None:
    iterations = dynamics.Iterations(interval=4)
    losses = [torch.tensor(1.0), torch.tensor(math.nan), torch.tensor(3.0), torch.tensor(100.0)]
    for step, loss in enumerate(losses):
        otel_ml.set_step(step)
        iterations.step(loss, samples=8, skipped=torch.tensor(float(step == 3)), skipped_samples=int(step == 1))

    assert otel_ml_capture.values("train/nan_iterations") == [0, 1, 1, 1]
    assert otel_ml_capture.values("train/skipped_iterations") == [0, 0, 0, 1]
    assert otel_ml_capture.values("train/consumed_samples") == [8, 16, 24, 32]
    assert otel_ml_capture.values("train/skipped_samples") == [0, 1, 1, 1]
    assert otel_ml_capture.values("train/loss_average") == [2.0]


@pytest.mark.filterwarnings("error")  # torch warns where a tensor with a gradient becomes a number
def test_a_loss_that_still_has_its_graph_is_taken_without_a_warning(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.Iterations(interval=1).step(torch.tensor(2.0, requires_grad=True) * 3)

    assert otel_ml_capture.values("train/loss_average") == [6.0]


def test_counts_go_on_after_a_restart(otel_ml_capture: Capture) -> None:
    before = dynamics.Iterations()
    otel_ml.set_step(0)
    before.step(math.inf, samples=8, skipped=True)
    otel_ml.set_step(1)
    dynamics.Iterations(state=before.state()).step(1.0, samples=8)

    assert otel_ml_capture.values("train/consumed_samples") == [8, 16]
    assert otel_ml_capture.values("train/nan_iterations") == [1, 1]


def test_an_interval_without_a_good_iteration_has_no_average(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.Iterations(interval=1).step(math.nan)

    (average,) = [point for point in otel_ml_capture.points if point.name == "train/loss_average"]
    assert average.value == 0.0  # with a weight of 0: the service leaves it out


def test_what_is_wrong_with_iterations_is_said_at_once() -> None:
    with pytest.raises(otel_ml.ConfigError) as raised:
        dynamics.Iterations(interval=0, state={"x": 1.0})

    assert len(raised.value.problems) == 2


@pytest.mark.feature("M18", "better", "loss scale, learning rates incl. decoupled, of every named group")
def test_what_training_is_set_to_is_recorded(otel_ml_capture: Capture) -> None:
    net = model()
    optimizer = torch.optim.AdamW(
        [
            {"params": net[0].parameters(), "lr": 0.1, "name": "body"},  # type: ignore[index]
            {"params": net[2].parameters(), "lr": 0.01, "is_decoupled_lr": True},  # type: ignore[index]
        ]
    )
    otel_ml.set_step(0)

    dynamics.record_state(optimizer, loss_scale=torch.tensor(65536.0), batch_size=256, world_size=8)

    found = {(point.name, *point.attributes.values()): point.value for point in otel_ml_capture.points}
    assert found[("train/learning_rate",)] == 0.1
    assert found[("train/learning_rate", "body")] == 0.1
    assert found[("train/decoupled_learning_rate",)] == 0.01
    assert found[("train/weight_decay",)] == 0.01
    assert found[("train/loss_scale",)] == 65536.0
    assert found[("train/batch_size",)] == 256
    assert found[("train/world_size",)] == 8
    assert ("train/micro_batch_size",) not in found


@pytest.mark.parametrize("loss", [1.5, torch.tensor(1.5)])
def test_a_loss_of_the_whole_job_has_its_perplexity(otel_ml_capture: Capture, loss: object) -> None:
    otel_ml.set_step(0)

    dynamics.record_validation(loss)

    assert otel_ml_capture.values("val/loss_perplexity") == [pytest.approx(math.exp(1.5))]


class Split(str, Enum):
    HELD_OUT = "held_out"


def test_a_name_that_is_a_member_of_an_enum_is_its_text(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.record_validation(0.0, name=Split.HELD_OUT)
    dynamics.record_layer("moe", Split.HELD_OUT, 2.0, layer=1)

    assert otel_ml_capture.values("val/held_out") == [0.0]
    assert otel_ml_capture.values("val/held_out_perplexity") == [1.0]
    assert otel_ml_capture.values("moe/held_out/layer_1") == [2.0]
    assert otel_ml_capture.values("moe/held_out") == [2.0]


def test_the_perplexity_is_that_of_the_only_role_or_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    def written(**losses: float) -> Path:
        rows = [
            {
                "role": role,
                "axis": "step",
                "step": 0,
                "values": {f"{role}/val/loss" if role != "trainer" else "val/loss": loss},
            }
            for role, loss in losses.items()
        ]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path

    assert dynamics.perplexity_of(written(actor=1.0)) == ([0], [math.e])
    assert dynamics.perplexity_of(written(actor=1.0, trainer=0.0)) == ([0], [1.0])
    assert dynamics.perplexity_of(written(actor=1.0, critic=0.0), role="critic") == ([0], [1.0])
    assert dynamics.perplexity_of(tmp_path, role="trainer") == ([], [])
    with pytest.raises(otel_ml.OtelMLError, match="actor/val/loss, critic/val/loss"):
        dynamics.perplexity_of(tmp_path)


def test_the_perplexity_of_a_model_that_knows_nothing_has_an_end(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.record_validation(1000.0)

    assert otel_ml_capture.values("val/loss_perplexity") == [math.exp(20)]


@pytest.mark.feature("M20", "yes", "per layer, with a reduction and group for each metric")
def test_a_layer_has_its_series_and_all_layers_have_one(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.record_layer("moe", "load_balancing_loss", 1.0, layer=0)
    dynamics.record_layer("moe", "load_balancing_loss", torch.tensor(3.0), layer=1)
    dynamics.record_layer("mtp", "loss", 2.0, layer=0, reduce="sum")

    assert otel_ml_capture.values("moe/load_balancing_loss/layer_1") == [3.0]
    assert otel_ml_capture.values("moe/load_balancing_loss") == [2.0]
    assert {p.reduction for p in otel_ml_capture.points if p.name == "mtp/loss"} == {"sum"}


@pytest.mark.feature(
    "M33", "better", "tokens of every expert, summed over ranks, in every backend and in metrics.jsonl"
)
def test_tokens_of_each_expert_are_traced(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.record_routing(torch.tensor([5, 0, 7]), layer=3)

    assert [otel_ml_capture.values(f"moe/tokens/layer_3/expert_{expert}") for expert in range(3)] == [[5], [0], [7]]


def test_the_largest_attention_logit_is_that_of_all_layers(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.record_attention_logit(3.0, layer=0)
    dynamics.record_attention_logit(torch.tensor(9.0), layer=1)

    (point,) = [point for point in otel_ml_capture.points if point.name == "attention/max_logit"]
    assert (point.max, point.reduction) == (9.0, "max")


def test_what_no_norm_can_be_made_of_is_said_and_training_goes_on(otel_ml_capture: Capture) -> None:
    otel_ml.set_step(0)

    dynamics.Norms([("weight", object())]).record_parameters()
    dynamics.record_state(object())
    dynamics.record_routing(5, layer=0)  # type: ignore[arg-type]

    assert ["training goes on" in notice for notice in otel_ml_capture.notices] == [True, True, True]
