"""Code of others that imports W&B is given our module, where a program has put it in W&B's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import capture
from tests.unit.otel_ml.compat.recorded import events, params, steps_of

FRAMEWORK = """
import wandb
from wandb import Table

class Tracking:
    def __init__(self, config, tags):
        wandb.init(project="p", name="n", group="g", job_type="trainer", config=config, tags=tags, reinit=True)
        wandb.define_metric("train/global_step")
        wandb.define_metric("train/*", step_metric="train/global_step", step_sync=True)
        self.samples = wandb.Table(columns=["step", "text"])

    def log(self, step, metrics):
        wandb.log({f"train/{name}": value for name, value in {**metrics, "global_step": step}.items()})
        self.samples = Table(columns=self.samples.columns, data=self.samples.data)
        self.samples.add_data(step, "sample")
        wandb.log({"train/samples": self.samples}, commit=False)

    def finish(self):
        if wandb.run is not None:
            wandb.finish(exit_code=0)
"""


@pytest.fixture
def framework(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    import_module("wandb")  # is put back after the test; with its parts alone a later import would be incomplete
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    module = ModuleType("framework")
    exec(FRAMEWORK, module.__dict__)
    yield module
    wandb.finish()


def test_a_framework_that_imports_wandb_records_into_otel_ml(framework: ModuleType) -> None:
    with capture() as captured:
        tracking = framework.Tracking({"lr": 0.1}, ["a"])
        for step in (10, 20):
            tracking.log(step, {"loss": 1 / step})
        tracking.finish()

    assert steps_of(captured, "train/loss", "train") == {10: 0.1, 20: 0.05}
    assert events(captured, "table")["train/samples"].body["rows"] == [[10, "sample"], [20, "sample"]]
    assert params(captured)["lr"] == 0.1


def test_what_our_module_does_not_have_is_the_originals_also_where_ours_stands_in_its_place(
    framework: ModuleType,
) -> None:
    assert framework.wandb.sweep.__module__ == "wandb.sdk.wandb_sweep"
    assert framework.wandb.sweep is framework.wandb.sweep
    assert sys.modules["wandb"] is wandb
    with pytest.raises(framework.wandb.CommError, match="finds no run 'team/pages/none'"):
        framework.wandb.Api().run("team/pages/none")
    assert not hasattr(framework.wandb, "no_such_name")


def test_a_library_finds_mlflows_limits_where_ours_stands_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.utils import validation

    from otel_ml.compat import mlflow

    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    library = ModuleType("library")
    exec("import mlflow", library.__dict__)

    # Optuna's MLflowCallback asks so.
    assert library.mlflow.utils.validation.MAX_TAG_VAL_LENGTH == validation.MAX_TAG_VAL_LENGTH
    assert sys.modules["mlflow"] is mlflow
