"""A driver that searches with Ray Tune: by Population Based Training, or with Ray Train inside of each trial.

`python -m tests.e2e.ray_tune_job FOLDER pbt|reused|train`
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.tune.schedulers import PopulationBasedTraining

import otel_ml

STEPS = 12
INTERVAL = 4
"""Steps after which both trials stop, and the worse one goes on as the better one."""

FOLDER = Path(sys.argv[1]).absolute()


def population(config: dict[str, Any]) -> None:
    """Be a trial of a function, in whichever process: each step says which rate it had."""
    checkpoint, step = tune.get_checkpoint(), 0
    if checkpoint:
        with checkpoint.as_directory() as folder:
            step = json.loads(Path(folder, "step").read_text())
    for at in range(step, STEPS):
        otel_ml.log({"rate": config["rate"], "recorded": 1.0}, step=at)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(at + 1))
            tune.report({"score": config["rate"], "at": at + 1}, checkpoint=tune.Checkpoint.from_directory(folder))


class Reused(tune.Trainable):  # type: ignore[misc] # Ray tells no types
    """A trial whose process does the other one, too."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin."""
        self.at = 0

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Be another trial."""
        self.at = 0
        return True

    def step(self) -> dict[str, Any]:
        """Train."""
        otel_ml.log({"rate": self.config["rate"], "recorded": 1.0}, step=self.at)
        self.at += 1
        return {"score": self.config["rate"], "at": self.at, "done": self.at >= STEPS}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the step."""
        Path(checkpoint_dir, "step").write_text(str(self.at))

    def load_checkpoint(self, checkpoint: str) -> None:
        """Go on from a step."""
        self.at = int(Path(checkpoint, "step").read_text())


def worker(config: dict[str, Any]) -> None:
    """Be a rank of a trial's training."""
    rank = ray.train.get_context().get_world_rank()
    for _ in otel_ml.steps(range(INTERVAL)):
        otel_ml.log({"own": config["rate"] + rank}, reduce="rank")
        otel_ml.log({"ranks": 1.0}, reduce="sum")


@ray.remote(num_cpus=0)  # type: ignore[untyped-decorator]
def evaluate(rate: float) -> None:
    """Be a task of a trial."""
    otel_ml.log({"evaluated": rate}, step=0)


def trainer(config: dict[str, Any]) -> None:
    """Be a trial that trains on two ranks."""
    ray.get(evaluate.remote(config["rate"]))
    training = RunConfig(storage_path=str(FOLDER), name=f"training-{config['rate']}")
    two = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
    DataParallelTrainer(worker, train_loop_config=config, scaling_config=two, run_config=training).fit()
    otel_ml.log({"fitted": config["rate"]}, step=0)
    tune.report({"score": config["rate"], "at": 1})


def search(what: Any, **options: Any) -> None:
    """Try two rates."""
    scheduled = PopulationBasedTraining(
        time_attr="at",
        perturbation_interval=INTERVAL,
        hyperparam_mutations={"rate": [0.1, 0.2, 0.4]},
        quantile_fraction=0.5,
        resample_probability=0.0,
        synch=True,
    )
    tune.Tuner(
        what,
        param_space={"rate": tune.grid_search([0.1, 0.4])},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", scheduler=None if what is trainer else scheduled, **options
        ),
        run_config=tune.RunConfig(storage_path=str(FOLDER), name="searched", verbose=0),
    ).fit()


PROGRAMS = {
    "pbt": lambda: search(population, reuse_actors=False),
    "reused": lambda: search(Reused, reuse_actors=True),
    "train": lambda: search(trainer, max_concurrent_trials=1),
}


def main() -> None:
    with otel_ml.init("search", exporters="jsonl", role="driver"):
        otel_ml.instrument_ray()
        ray.init(num_cpus=1 if sys.argv[2] == "reused" else 2, include_dashboard=False)
        PROGRAMS[sys.argv[2]]()
        ray.shutdown()


if __name__ == "__main__":
    main()
