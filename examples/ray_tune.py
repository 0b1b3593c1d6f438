"""A search with Ray Tune: each trial is a run, though all of them are one job of one driver.

    python examples/ray_tune.py

Expected: four runs in the experiment `search`, named after their learning rate, each with `loss` at the steps 0…19 of
its own trial and the learning rate among its parameters.
"""

from __future__ import annotations

import os
from pathlib import Path

import ray
from ray import tune

import otel_ml


def train(config: dict[str, float]) -> None:
    rate, weight = config["rate"], 4.0
    with otel_ml.init("search", name=f"rate={rate}", params=config):
        for _ in otel_ml.steps(range(20)):
            weight -= rate * 2 * weight
            otel_ml.log({"loss": weight**2})
    tune.report({"loss": weight**2})


def main() -> None:
    # Ray starts workers in folders of its own: an absolute path keeps the runs here.
    runs = os.environ.get("OTEL_ML_DIR", "otel-ml-runs")
    environment = {"env_vars": {"OTEL_ML_DIR": str(Path(runs).absolute())}}
    ray.init(num_cpus=4, include_dashboard=False, runtime_env=environment)
    search = tune.Tuner(
        train,
        param_space={"rate": tune.grid_search([0.01, 0.05, 0.1, 0.4])},
        run_config=tune.RunConfig(storage_path=str(Path("ray-results").absolute()), verbose=0),
    )
    best = search.fit().get_best_result("loss", "min")
    print("best:", best.config)


if __name__ == "__main__":
    main()
