"""What is recorded of torch: the process group, the model, and waits for a loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, TensorDataset

import otel_ml
from otel_ml.integrations.torch import log_environment, log_model, timed_loader, topology
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def params(captured: Capture) -> dict[str, object]:
    return {key: value for event in captured.events if event.kind == "ml.params" for key, value in event.body.items()}


def test_without_a_process_group_there_is_no_topology() -> None:
    assert topology() == {}


@pytest.mark.usefixtures("process_group")
def test_the_ranks_of_a_process_group_are_the_dimension_dp() -> None:
    assert topology() == {"dp": (0, 1)}


@pytest.mark.usefixtures("process_group")
def test_a_mesh_gives_its_own_dimensions() -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))

    assert topology(mesh) == {"dp": (0, 1), "tp": (0, 1)}


@pytest.mark.usefixtures("process_group")
def test_the_environment_is_recorded_as_parameters(captured: Capture) -> None:
    log_environment()

    found = params(captured)["torch"]
    assert found["version"] == torch.__version__
    assert found["distributed"] == {"backend": "gloo", "world_size": 1}


def test_the_environment_is_recorded_without_cuda_being_begun_for_it(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)  # of a host with GPUs, as NVML counts them
    for call in ("is_available", "current_device", "get_device_name"):  # each of which begins CUDA, or its driver
        monkeypatch.setattr(torch.cuda, call, lambda *_, call=call: begun.append(call))
    log_environment()

    assert params(captured)["torch"]["devices"] == 8  # type: ignore[index]
    assert begun == []


def test_a_timed_generator_is_true_as_a_generator_is() -> None:
    assert timed_loader(batch for batch in [1])
    assert not timed_loader([])


def test_a_timed_loader_records_its_waits_and_is_otherwise_the_loader(captured: Capture) -> None:
    data = TensorDataset(torch.arange(6.0))
    loader = timed_loader(DataLoader(data, batch_size=2))

    otel_ml.set_step(0)
    batches = [batch.tolist() for (batch,) in loader]

    assert batches == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert (len(loader), loader.batch_size, loader.dataset) == (3, 2, data)
    [point] = [point for point in captured.points if point.name == "time/data"]
    assert point.value > 0
    assert point.reduction == "sum>max"


def test_a_model_is_recorded_as_a_text_and_its_sizes(captured: Capture) -> None:
    first = torch.nn.Linear(3, 4)
    first.weight.requires_grad_(False)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Linear(4, 2, bias=False))

    log_model(model, "policy")

    assert params(captured)["policy"] == {
        "class": "Sequential", "parameters": 24, "trainable_parameters": 12, "bytes": 96, "dtypes": ["float32"],
    }  # fmt: skip
    [text] = [event.body for event in captured.events if event.kind == "ml.text"]
    assert "| (model) | Sequential | 24 |" in text
    assert "| 2 | Linear | 8 |" in text


def test_a_model_with_lazy_modules_is_recorded_without_their_sizes(captured: Capture) -> None:
    log_model(torch.nn.Sequential(torch.nn.LazyLinear(2), torch.nn.Linear(2, 1)))

    assert params(captured)["model"]["parameters"] == 3


def test_of_a_sharded_model_the_shard_of_this_process_is_counted(captured: Capture) -> None:
    # It takes a second, and SymPy: workers that collect this file do not all run it.
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        model = torch.nn.Linear(4, 2, bias=False)
        shard = DTensor.from_local(torch.ones(1, 4), mesh, [Shard(0)], run_check=False)
        model.weight = torch.nn.Parameter(shard)
        log_model(model)
    finally:
        distributed.destroy_process_group()

    [facts] = [event.body["model"] for event in captured.events if event.kind == "ml.params"]
    assert (facts["parameters"], facts["bytes"]) == (4, 16)


def test_what_is_no_model_is_said(captured: Capture) -> None:
    log_model([torch.nn.Linear(1, 1)])  # type: ignore[arg-type]

    assert "'list' object has no attribute 'parameters'" in captured.notices[0]


@pytest.mark.parametrize(("version", "recorded"), [("12.4", {"cuda": "12.4"}), (None, {})])
def test_the_version_of_cuda_is_recorded_where_torch_has_one(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, version: str | None, recorded: dict[str, str]
) -> None:
    monkeypatch.setattr(torch.version, "cuda", version)
    log_environment()

    found = params(captured)["torch"]
    assert isinstance(found, dict)
    assert {key: value for key, value in found.items() if key == "cuda"} == recorded
