"""`wandb.watch()`: what the package `wandb` itself writes for a model is what is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import wandb as original

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.frameworks.originals import histograms_of_wandb

Histograms = Mapping[str, Mapping[int, tuple[list[float], list[float]]]]


def train(module: Any, **options: Any) -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(3, 40), torch.nn.Sequential(torch.nn.Linear(40, 2), torch.nn.BatchNorm1d(2))
    for frozen in second[0].parameters():
        frozen.requires_grad_(False)
    module.watch([first, second], log="all", log_freq=2, **options)
    for step in range(4):
        loss = second(first(torch.randn(8, 3))).square().sum()
        loss.backward()
        module.log({"loss": loss.item()}, **({} if step % 2 else {"step": 10 * step}))
    module.unwatch([first])
    second(first(torch.randn(8, 3))).sum().backward()
    second(first(torch.randn(8, 3))).sum().backward()
    module.log({"loss": 0.0})


def recorded(captured: Capture) -> Histograms:
    shown: dict[str, dict[int, tuple[list[float], list[float]]]] = {}
    for event in captured.events:
        if event.kind == "ml.histogram":
            shown.setdefault(str(event.name), {})[event.step or 0] = (event.body["counts"], event.body["edges"])
    return shown


def test_gradients_and_parameters_are_those_that_wandb_writes(tmp_path: Path) -> None:
    with original.init(mode="offline", dir=tmp_path, settings=original.Settings(silent=True)):
        train(original, idx=0)
    with capture() as captured, wandb.init():
        train(wandb, idx=0)
        ours = recorded(captured)

    theirs = histograms_of_wandb(tmp_path)
    assert {"gradients/weight", "parameters/bias", "parameters/graph_10.weight", "gradients/graph_11.bias"} <= set(ours)
    assert {name: sorted(at) for name, at in ours.items()} == {name: sorted(at) for name, at in theirs.items()}
    for name, at in theirs.items():
        for step, (counts, edges) in at.items():
            if len(counts) > 1:  # of equal values W&B has one bin, without a width
                assert ours[name][step][0] == counts, (name, step)
                assert ours[name][step][1] == pytest.approx(np.array(edges), rel=1e-5, abs=1e-7), (name, step)
            else:
                assert sum(ours[name][step][0]) == sum(counts), (name, step)
