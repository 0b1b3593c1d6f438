"""The Inspector and a CUDA graph that is captured: inside of it nothing is looked at, beside it nothing breaks it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics.inspection import Inspector
from otel_ml.diagnostics.inspection.host_copy import copied, wait_for
from otel_ml.testing import Capture, otel_ml_capture
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.diagnostics.kernels_on_fake_cuda import card

__all__ = ["card", "otel_ml_capture"]


def asked(stats: list[str]) -> dict[str, Any]:
    tensors = {"tensors": ["activation"]}
    feature = {"LogTensorStats": {"stats": stats, **tensors}} if stats else {"DumpTensors": tensors}
    return {"all": {"layers": {"layer_name_regex_pattern": ".*"}, "transformer_engine": feature}}


OWN = {"mine": (lambda tensor: tensor.float().sum(), "max")}


@pytest.mark.parametrize("stats", [["max"], ["mine"], ["max_blockwise_dynamic_range"], []], ids=str)
def test_what_a_graph_is_captured_of_is_not_looked_at_and_the_graph_is_whole(
    otel_ml_capture: Capture, card: FakeCuda, tmp_path: Path, stats: list[str]
) -> None:
    net = card.module(torch.nn.Sequential(torch.nn.Linear(8, 8)))
    inspector = Inspector(net, asked(stats), statistics=OWN, log_dir=tmp_path, rank=0)
    graph, x, passes = torch.cuda.CUDAGraph(), card.tensor(torch.ones(4, 8)), card.tensor(0.0)
    otel_ml.set_step(0)
    with torch.cuda.graph(graph):
        net(x)
        passes.add_(1)
    graph.replay()
    inspector.step()
    inspector.close()

    assert passes.inner.item() == 1.0
    assert otel_ml_capture.points == []
    assert [path.name for path in tmp_path.rglob("*.pt")] == []
    (notice,) = otel_ml_capture.notices
    assert "outside of the captured region" in notice


def test_what_is_copied_to_be_written_leaves_the_graphs_of_others_whole(card: FakeCuda) -> None:
    found: list[Any] = []

    def copy_and_wait() -> None:
        host, arrived = copied(card.tensor([1.0, 2.0]))
        wait_for(arrived)
        found.append(host.tolist())

    graph, x = torch.cuda.CUDAGraph(), card.tensor(1.0)
    with torch.cuda.graph(graph):
        x.add_(1)
        other = threading.Thread(target=copy_and_wait)
        other.start()
        other.join()
    graph.replay()

    assert x.inner.item() == 2.0
    assert found == [[1.0, 2.0]]
