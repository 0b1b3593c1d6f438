"""A run of W&B's interface that a program gives to the processes that it starts: what they record is in that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recorded_by import ids_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

PROGRAM = """
import multiprocessing
from otel_ml.compat import wandb

def evaluate(run, config):
    assert (wandb.run is run, wandb.config.lr, run.config.lr, config.lr, run.name) == (True, 0.1, 0.1, 0.1, "digits")
    run.log({"acc": 0.5})
    wandb.config.update({"evaluated": True})

if __name__ == "__main__":
    with wandb.init(project="exp", name="digits", config={"lr": 0.1}) as run:
        run.log({"loss": 1.0})
        child = multiprocessing.get_context(METHOD).Process(target=evaluate, args=(run, run.config))
        child.start()
        child.join()
        assert child.exitcode == 0
        run.log({"loss": 0.5})
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_run_and_its_config_that_a_process_is_given_are_the_run_there(
    server: OtlpServer, tmp_path: Path, method: str
) -> None:
    run(PROGRAM.replace("METHOD", repr(method)), environment(tmp_path, variables(server)), tmp_path)

    assert (values_of(server, "loss"), values_of(server, "acc")) == ({"digits": [1.0, 0.5]}, {"digits": [0.5]})
    assert {point.step for point in server.points("acc")} == {1}
    assert len(ids_of(server, "acc") | ids_of(server, "loss")) == 1
    said = {key for event in server.events("ml.params") for key in event.body}
    assert said >= {"lr", "evaluated"}
