"""A driver that trains with Ray Train: two workers on the CPU, as a user of `TorchTrainer` has it.

`python -m tests.e2e.ray_train_job FOLDER STEPS`
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import ray
import ray.train
from ray.train.torch import TorchTrainer, prepare_model

import otel_ml


def train(config: Mapping[str, Any]) -> None:
    import torch

    model = prepare_model(torch.nn.Linear(2, 1))
    rank = ray.train.get_context().get_world_rank()
    for step in otel_ml.steps(range(config["steps"])):
        with otel_ml.timed("forward"):
            loss = model(torch.ones(1, 2)).square().mean()
        loss.backward()
        otel_ml.log({"own": float(rank)}, reduce="rank")
        otel_ml.log({"ranks": 1.0}, reduce="sum")
        otel_ml.log({"square": float(step) ** 2 + rank})
    ray.train.report({"loss": float(loss.detach())})


def main() -> None:
    with otel_ml.init("ray-train", exporters="jsonl", role="driver"):
        otel_ml.instrument_ray()
        ray.init(num_cpus=3, include_dashboard=False)
        trainer = TorchTrainer(
            train,
            train_loop_config={"steps": int(sys.argv[2])},
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=sys.argv[1], name="train"),
        )
        trainer.fit()
        otel_ml.log({"fitted": 1.0}, step=0)
        ray.shutdown()


if __name__ == "__main__":
    main()
