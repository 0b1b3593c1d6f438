"""A captured CUDA graph that records with weights, read back from the run."""

from __future__ import annotations

import torch

import otel_ml
from tests.fake_cuda import fake_cuda


def test_weights_on_the_device_and_on_the_host_count_for_each_replay() -> None:
    with fake_cuda() as cuda:
        losses, tokens, count = cuda.tensor([1.0, 4.0]), cuda.tensor([3.0, 1.0]), cuda.tensor(2.0)
        run = otel_ml.init("captured", exporters="jsonl")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            otel_ml.log({"each": losses}, weight=tokens)
            otel_ml.log({"alike": losses}, weight=count)
            otel_ml.log({"by_host": count}, weight=5)
            otel_ml.log({"of_host": 8.0}, weight=count)
        for step in range(3):
            otel_ml.set_step(step)
            tokens.fill_(step)
            tokens[0].fill_(3.0)
            graph.replay()
        assert otel_ml.shutdown(20.0)

    found = otel_ml.read(run)
    assert found["each"] == ([0, 1, 2], [1.0, 1.75, 2.2])
    assert found["alike"] == ([0, 1, 2], [2.5] * 3)
    assert found["by_host"] == ([0, 1, 2], [2.0] * 3)
    assert found["of_host"] == ([0, 1, 2], [8.0] * 3)
