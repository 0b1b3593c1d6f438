"""Statistics of weights, activations and gradients of a real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import otel_ml
from otel_ml.diagnostics.inspection import Inspector
from otel_ml.diagnostics.inspection.statistics import STATISTICS
from otel_ml.testing import Capture, otel_ml_capture
from tests.e2e.jobs import the_run_in

__all__ = ["otel_ml_capture"]

PLAIN = [*STATISTICS]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 6)
        self.fc2 = torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(torch.relu(self.fc1(x)))


def block() -> Block:
    torch.manual_seed(0)
    return Block()


def config(layers: dict[str, Any], feature: str = "LogTensorStats", **options: Any) -> dict[str, Any]:
    return {"section": {"enabled": True, "layers": layers, "transformer_engine": {feature: options}}}


def values(captured: Capture) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for point in captured.points:
        if point.name.startswith("inspect/"):
            found.setdefault(point.name, []).append(point.value / point.count)
    return found


@pytest.mark.feature(
    "M27", "better", "all statistics and six tensors; ranks and micro-batches merge exactly, in the run"
)
def test_a_run_shows_the_statistics_that_torch_computes(tmp_path: Path) -> None:
    net = block()
    tensors = ["weight", "activation", "output", "gradient", "wgrad", "dgrad"]
    batches = [torch.randn(5, 4), torch.randn(3, 4) + 10]
    inspector = Inspector(net, config({"layer_name_regex_pattern": "fc2"}, stats=PLAIN, tensors=tensors))

    with otel_ml.init("inspect", exporters="jsonl"):
        otel_ml.set_step(0)
        for batch in batches:
            net(batch).square().sum().backward()
        inspector.step()
        otel_ml.shutdown(timeout=60.0)
    inspector.close()

    run = the_run_in(tmp_path / "otel-ml-runs")
    found = {name: numbers[0] for name, (_, numbers) in otel_ml.read(run).items()}
    seen = torch.cat([torch.relu(net.fc1(batch)) for batch in batches]).detach()
    for tensor, expected in {
        "activation": seen,
        "weight": net.fc2.weight.detach(),
        "wgrad": net.fc2.weight.grad,
    }.items():
        assert expected is not None
        absolute = expected.abs()
        wanted = {
            "min": expected.min(),
            "max": expected.max(),
            "mean": expected.mean(),
            "std": expected.std(correction=0),
            "l1_norm": absolute.sum(),
            "l2_norm": expected.norm(),
            "cur_amax": absolute.max(),
            "dynamic_range": absolute.max().log2() - absolute[absolute > 0].min().log2(),
        }
        for stat, value in wanted.items():
            assert found[f"inspect/fc2/{tensor}/{stat}"] == pytest.approx(value.item(), rel=1e-4), (tensor, stat)
    assert {name.split("/")[2] for name in found if name.startswith("inspect/")} == set(tensors)


def test_ranks_that_hold_0_and_2_have_a_deviation_of_1(otel_ml_capture: Capture) -> None:
    """The tool this replaces subtracts what lies between the groups, and shows NaN."""
    net = block()
    inspector = Inspector(net, config({"layer_types": ["fc1"]}, stats=["std"], tensors=["activation"]))
    otel_ml.set_step(0)
    for value in (0.0, 2.0):  # as micro-batches
        net(torch.full((4, 4), value))
    inspector.step()

    (point,) = [point for point in otel_ml_capture.points if point.name == "inspect/fc1/activation/std"]
    assert (point.count, point.min, point.max) == (2, 0.0, 2.0)  # mean ± deviation, which ranks pool


@pytest.mark.feature("M27", "better", "freq, start, end and ranges, both ends inside")
def test_tensors_are_seen_at_the_steps_of_their_schedule_only(otel_ml_capture: Capture) -> None:
    net = block()
    schedule = {"freq": 2, "start_end_list": [[0, 2], [6, 9]]}
    inspector = Inspector(net, config({"layer_types": ["fc1"]}, stats=["max"], tensors=["output"], **schedule))
    for step in range(12):
        otel_ml.set_step(step)
        net(torch.ones(1, 4))
        inspector.step()

    assert [point.step for point in otel_ml_capture.points] == [0, 2, 6, 8]


def test_nothing_is_recorded_after_close(otel_ml_capture: Capture) -> None:
    net = block()
    inspector = Inspector(net, config({"layer_types": ["fc1"]}, stats=["max"], tensors=["weight", "output"]))
    for step in range(2):
        otel_ml.set_step(step)
        net(torch.ones(1, 4))
        inspector.step()
        inspector.close()

    assert sorted((point.step, point.name) for point in otel_ml_capture.points) == [
        (0, "inspect/fc1/output/max"),
        (0, "inspect/fc1/weight/max"),
    ]


def test_without_a_step_of_the_program_its_own_steps_are_counted(otel_ml_capture: Capture) -> None:
    net = block()
    inspector = Inspector(
        net, config({"layer_types": ["fc1"]}, stats=["max"], tensors="weight", start_step=1, end_step=2)
    )
    for _ in range(5):
        inspector.step()

    assert sorted({point.step for point in otel_ml_capture.points}) == [1, 2]


def test_each_tensor_of_a_struct_has_its_own_statistics_and_schedule(otel_ml_capture: Capture) -> None:
    net = block()
    struct = [{"tensor": "weight", "stats": ["max"], "freq": 2}, {"tensor": "output", "stats": ["min"]}]
    inspector = Inspector(net, config({"layer_types": ["fc1"]}, tensors_struct=struct, freq=1))
    for step in range(3):
        otel_ml.set_step(step)
        net(torch.ones(1, 4))
        inspector.step()

    steps = {(point.name, point.step) for point in otel_ml_capture.points}
    assert steps == {("inspect/fc1/weight/max", step) for step in (0, 2)} | {
        ("inspect/fc1/output/min", step) for step in range(3)
    }


def test_yaml_means_what_the_mapping_means(otel_ml_capture: Capture, tmp_path: Path) -> None:
    net = block()
    content = config({"layer_name_regex_pattern": ".*fc.*"}, stats=["max"], tensors=["weight"])
    (tmp_path / "inspect.yaml").write_text(yaml.safe_dump(content))

    inspector = Inspector(net, tmp_path / "inspect.yaml")

    assert inspector.layers == ("fc1", "fc2")


def test_a_section_that_is_switched_off_does_nothing(otel_ml_capture: Capture) -> None:
    content = config({"layer_types": ["fc1"]}, stats=["max"], tensors=["weight"])
    content["section"]["enabled"] = False

    assert Inspector(block(), content).layers == ()


@pytest.mark.feature("M27", "better", "a rank's text log is written by a thread of its own")
def test_each_rank_writes_a_text_log_of_its_own_values(otel_ml_capture: Capture, tmp_path: Path) -> None:
    net = block()
    content = config({"layer_types": ["fc1"]}, stats=["max", "l2_norm"], tensors=["weight"])
    inspector = Inspector(net, content, log_dir=tmp_path / "logs", rank=3)
    inspector.step()
    inspector.close()

    lines = (tmp_path / "logs" / "inspection-rank-3.log").read_text().splitlines()
    assert [line.split(" - ")[2].split() for line in lines] == [
        ["fc1_weight_max", "iteration=000000", f"value={net.fc1.weight.max().item():.6g}"],
        ["fc1_weight_l2_norm", "iteration=000000", f"value={net.fc1.weight.norm().item():.6g}"],
    ]


@pytest.mark.feature("M27", "yes", "a user's own statistic is a function and a reduction")
def test_a_users_own_statistic_is_recorded(otel_ml_capture: Capture) -> None:
    own = {"kurtosis": (lambda tensor: (tensor.float() ** 4).mean(), "max")}
    inspector = Inspector(
        block(), config({"layer_types": ["fc1"]}, stats=["kurtosis"], tensors=["weight"]), statistics=own
    )
    inspector.step()

    (point,) = otel_ml_capture.points
    assert (point.name, point.reduction) == ("inspect/fc1/weight/kurtosis", "max")


def test_inspection_changes_neither_outputs_nor_gradients() -> None:
    quiet, watched = block(), block()
    stats = {"stats": PLAIN, "tensors": ["weight", "activation", "output", "gradient", "wgrad", "dgrad"]}
    Inspector(watched, config({"layer_name_regex_pattern": ".*"}, **stats))
    batch = torch.randn(5, 4)
    for net in (quiet, watched):
        net(batch).sum().backward()

    assert torch.equal(quiet(batch), watched(batch))
    for mine, theirs in zip(quiet.parameters(), watched.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)  # type: ignore[arg-type]


def test_the_gradient_of_an_input_is_that_which_came_through_this_layer(otel_ml_capture: Capture) -> None:
    net = block()
    inspector = Inspector(net, config({"layer_types": ["fc1"]}, stats=["l1_norm"], tensors=["dgrad"]))
    otel_ml.set_step(0)
    batch = torch.ones(1, 4, requires_grad=True)
    (net.fc1(batch).sum() + 100 * batch.sum()).backward()
    inspector.step()

    expected = net.fc1.weight.detach().sum(dim=0).abs().sum().item()
    assert otel_ml_capture.values("inspect/fc1/dgrad/l1_norm") == [pytest.approx(expected)]


def test_an_end_of_minus_one_is_none(otel_ml_capture: Capture) -> None:
    options = {"stats": ["max"], "tensors": ["weight"], "start_step": 1, "end_step": -1}
    inspector = Inspector(block(), config({"layer_types": ["fc1"]}, **options))
    for step in range(3):
        otel_ml.set_step(step)
        inspector.step()

    assert [point.step for point in otel_ml_capture.points] == [1, 2]


def test_closed_it_sees_nothing_more(otel_ml_capture: Capture) -> None:
    net = block()
    inspector = Inspector(net, config({"layer_types": ["fc1"]}, stats=["max"], tensors=["output"]))
    inspector.close()
    net(torch.ones(1, 4))
    inspector.step()

    assert otel_ml_capture.points == []


def test_what_fits_no_layer_names_the_layers_there_are() -> None:
    with pytest.raises(otel_ml.ConfigError, match=r"'attention' fits no layer\. There are: fc1, fc2\."):
        Inspector(block(), config({"layer_name_regex_pattern": "attention"}, stats=["max"], tensors=["weight"]))


def test_a_layer_belongs_to_one_section() -> None:
    one = config({"layer_types": ["fc"]}, stats=["max"], tensors=["weight"])
    with pytest.raises(otel_ml.ConfigError, match="belongs to one section") as raised:
        Inspector(block(), {**one, "other": one["section"]})

    assert len(raised.value.problems) == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (config({"layer_types": ["fc1"]}, stats=["maxx"], tensors=["weight"]), "Did you mean 'max'?"),
        (config({"layer_types": ["fc1"]}, stats=["max"], tensors=["wieght"]), "Did you mean 'weight'?"),
        (config({"layer_types": ["fc1"]}, stats=["max"], tensors=["weight"], frequ=2), "Did you mean 'freq'?"),
        (config({"layer_types": ["fc1"]}, "LogTensorStat", stats=["max"]), "Did you mean 'LogTensorStats'?"),
        (config({"layer_types": ["fc1"]}, "DisableFP8GEMM"), "otel_ml only measures"),
        (config({"layer_types": ["fc1"]}, tensors=["weight"]), "expected stats, got none"),
        (config({"layer_types": ["fc1"]}, stats=["max"]), "expected tensors or tensors_struct"),
        (config({"layer_types": ["fc1"]}, stats=["max"], tensors=["weight"], freq=0), "freq: expected a number"),
        (config({"layer_types": ["fc1"]}, stats=["max"], tensors=["weight"], start_end_list=[[5, 1]]), "first ≤ last"),
        (
            config({"layer_types": ["fc1"]}, stats=["max"], tensors=["weight"], start_end_list=5),
            "expected a list, got 5",
        ),
        (config({"layer_types": ["fc1"]}, stats=["max"], tensors=5), "tensors: expected a list, got 5"),
        (config({"layer_types": ["fc1"]}, stats=5, tensors=["weight"]), "stats: expected a list, got 5"),
        (config({"layer_types": ["fc1"]}, stats="max", tensors=["weight"]), "stats: expected a list, got 'max'"),
        (config({"layer_types": ["fc1"]}, tensors_struct=["weight"]), "expected a list of {tensor: …, stats: …}"),
        (config({"layer_types": ["fc1"]}, tensors_struct=5), "expected a list of {tensor: …, stats: …}"),
        (config({"layer_types": ["fc1"]}, tensors_struct={"tensor": "weight"}), "expected a list of {tensor: …"),
        ({"section": {"layers": {"layer_types": ["fc1"]}, 5: {}}}, "unknown feature 5"),
        (config({"layer_name_regex_pattern": "("}, stats=["max"], tensors=["weight"]), "regular expression"),
        (config({}, stats=["max"], tensors=["weight"]), "expected layer_name_regex_pattern or layer_types"),
        ({"section": 3}, "expected layers and features"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(content: dict[str, Any], sentence: str) -> None:
    with pytest.raises(otel_ml.ConfigError) as raised:
        Inspector(block(), content)

    assert sentence in str(raised.value)


def test_all_mistakes_are_named_at_once() -> None:
    wrong = config({"layer_types": ["fc1"]}, stats=["maxx", "minn"], tensors=["wieght"], freq=-1)
    with pytest.raises(otel_ml.ConfigError) as raised:
        Inspector(block(), wrong)

    assert len(raised.value.problems) == 4


def test_a_file_that_is_no_yaml_says_so(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [")

    (tmp_path / "latin.yaml").write_bytes("größe: 1".encode("latin-1"))

    for name in ("bad.yaml", "none.yaml", "latin.yaml"):
        with pytest.raises(otel_ml.ConfigError, match="cannot be read"):
            Inspector(block(), tmp_path / name)


@pytest.mark.feature("M29", "better", "whole tensors of each micro-batch, rank and step, saved by a thread of its own")
def test_whole_tensors_are_saved_as_they_were_at_the_step(otel_ml_capture: Capture, tmp_path: Path) -> None:
    net = block()
    content = config({"layer_types": ["fc1"]}, "DumpTensors", tensors=["weight", "activation"], freq=2)
    inspector = Inspector(net, content, log_dir=tmp_path, rank=1)
    before = net.fc1.weight.detach().clone()
    for step in range(3):
        otel_ml.set_step(step)
        net(torch.full((1, 4), float(step)))
        net(torch.full((1, 4), 0.5))
        inspector.step()
        with torch.no_grad():
            net.fc1.weight += 1
    inspector.close()

    saved = sorted(path.name for path in (tmp_path / "rank-1" / "fc1").iterdir())
    assert saved == [
        *(f"activation-{step:06d}-{micro}.pt" for step in (0, 2) for micro in (0, 1)),
        *(f"weight-{step:06d}-0.pt" for step in (0, 2)),
    ]
    assert torch.equal(torch.load(tmp_path / "rank-1" / "fc1" / "weight-000002-0.pt"), before + 2)
    assert torch.equal(torch.load(tmp_path / "rank-1" / "fc1" / "activation-000002-0.pt"), torch.full((1, 4), 2.0))


def test_tensors_are_not_saved_to_a_folder_nobody_named() -> None:
    with pytest.raises(otel_ml.ConfigError, match="Pass log_dir="):
        Inspector(block(), config({"layer_types": ["fc1"]}, "DumpTensors", tensors=["weight"]))


def test_layers_of_integers_and_empty_batches_are_left_out(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 2))
    inspector = Inspector(net, config({"layer_name_regex_pattern": "[01]"}, stats=["max"], tensors=["activation"]))
    otel_ml.set_step(0)
    net(torch.tensor([1, 2]))
    net(torch.zeros(0, dtype=torch.long))
    inspector.step()

    assert {point.name for point in otel_ml_capture.points} == {"inspect/1/activation/max"}
    assert json.dumps(otel_ml_capture.notices) == "[]"


def test_a_statistic_that_raises_hurts_no_forward_pass(otel_ml_capture: Capture) -> None:
    def broken(tensor: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    net = block()
    content = config({"layer_types": ["fc1"]}, stats=["max", "broken"], tensors=["output"])
    inspector = Inspector(net, content, statistics={"broken": (broken, "mean")})
    otel_ml.set_step(0)
    net(torch.ones(1, 4))
    inspector.step()

    assert {point.name for point in otel_ml_capture.points} == {"inspect/fc1/output/max"}
    assert "ZeroDivisionError" in otel_ml_capture.notices[0]


def test_a_layer_without_a_weight_takes_nothing_from_the_others(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    layers = {"layer_name_regex_pattern": ".*"}
    inspector = Inspector(net, config(layers, stats=["max"], tensors=["weight", "wgrad", "activation"]))

    for _ in range(2):
        net(torch.ones(3, 4)).sum().backward()
        inspector.step()

    seen = {(layer, tensor) for layer in "02" for tensor in ("weight", "wgrad", "activation")} | {("1", "activation")}
    assert {name: len(found) for name, found in values(otel_ml_capture).items()} == {
        f"inspect/{layer}/{tensor}/max": 2 for layer, tensor in seen
    }
    assert otel_ml_capture.notices == []


def test_what_cannot_be_read_of_one_tensor_is_said_and_the_others_are_recorded(otel_ml_capture: Capture) -> None:
    class Packed(torch.nn.Module):
        @property
        def weight(self) -> torch.Tensor:
            raise ValueError("unpack it first")

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), Packed(), torch.nn.Linear(4, 2))
    inspector = Inspector(net, config({"layer_name_regex_pattern": ".*"}, stats=["max"], tensors=["weight"]))

    inspector.step()

    assert set(values(otel_ml_capture)) == {"inspect/0/weight/max", "inspect/2/weight/max"}
    assert any("unpack it first" in notice for notice in otel_ml_capture.notices)
