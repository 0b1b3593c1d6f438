"""A run of W&B's interface, its config and its summary, in a pickle: whose run it is where it arrives."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import params, steps_of


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


def again(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_a_run_that_is_pickled_is_itself_in_its_own_process(captured: Capture) -> None:
    run = wandb.init(config={"lr": 0.1})
    checkpoint = again({"model": "tiny", "run": run})

    checkpoint["run"].log({"loss": 1.0})

    assert checkpoint["run"] is run is copy.copy(run)
    assert steps_of(captured, "loss") == {0: 1.0}


def test_a_run_that_has_ended_is_pickled_as_the_one_that_has_ended(captured: Capture) -> None:
    run = wandb.init()
    run.finish()

    assert (again(run) is run, wandb.run) == (True, None)


def test_a_summary_that_is_pickled_has_the_values_of_then(captured: Capture) -> None:
    run = wandb.init()
    run.log({"loss": 1.0})
    summary = again(run.summary)
    run.log({"loss": 2.0})

    assert dict(summary) == {"loss": 1.0}


@pytest.mark.parametrize("copied", [again, copy.copy, copy.deepcopy])
def test_a_config_is_copied_as_its_values_and_what_is_set_in_the_copy_is_said_and_not_the_runs(
    captured: Capture, copied: Any
) -> None:
    run = wandb.init(config={"lr": 0.1, "model": {"name": "cnn"}})
    config = copied(run.config)
    assert (type(config), config.as_dict(), config.lr) == (wandb.Config, run.config.as_dict(), 0.1)

    config.lr = 0.5

    assert (config.lr, run.config.lr, params(captured)["lr"]) == (0.5, 0.1, 0.1)
    assert any("Setting 'lr' in a copy of wandb.config" in notice for notice in captured.notices)


def test_a_run_that_arrives_in_another_job_is_of_no_run_which_is_said(captured: Capture, tmp_path: Path) -> None:
    """W&B raises `UsageError` once it is asked for something; here the program goes on."""
    run = wandb.init(project="digits", config={"lr": 0.1})
    (tmp_path / "run.pkl").write_bytes(pickle.dumps(run))
    program = (
        "import pickle; from otel_ml.compat import wandb; run = pickle.load(open('run.pkl', 'rb'))\n"
        "run.log({'loss': 1.0}); print(run.id, run.project, run.config.lr, wandb.run)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert done.stdout.split() == [run.id, "digits", "0.1", "None"]
    assert f"UsageError: Unable to attach to run {run.id}" in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "run.pkl"]
