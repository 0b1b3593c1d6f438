"""Ray: trials of Tune as functions and as classes, workers of Train, and Train inside of Tune."""

import sys

import ray
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback

from tests.launchers.programs.job import train

FOLDER = sys.argv[2]


def trial(config: dict[str, float]) -> None:
    """Be a trial."""
    train()
    tune.report({"loss": config["rate"]})


class Trial(tune.Trainable):
    """A trial that is a class."""

    def step(self) -> dict[str, object]:
        """Train, all at once."""
        train()
        return {"loss": 1.0, "done": True}


def worker(config: object) -> None:
    """Be a worker of Train."""
    train()


def fit(callbacks: list[object]) -> None:
    """Train on two workers."""
    TorchTrainer(
        worker,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=FOLDER, callbacks=callbacks),
    ).fit()


def trainer(config: object) -> None:
    """Be a trial that trains on two workers."""
    fit([TuneReportCallback()])


def search(what: object) -> None:
    """Try two rates."""
    tune.Tuner(
        what,
        param_space={"rate": tune.grid_search([1.0, 2.0])},
        run_config=tune.RunConfig(storage_path=FOLDER, verbose=0),
    ).fit()


PROGRAMS = {
    "tune": lambda: search(trial),
    "class": lambda: search(Trial),
    "train": lambda: fit([]),
    "both": lambda: search(trainer),
}

if __name__ == "__main__":
    ray.init(num_cpus=8, include_dashboard=False)
    PROGRAMS[sys.argv[1]]()
    ray.shutdown()
