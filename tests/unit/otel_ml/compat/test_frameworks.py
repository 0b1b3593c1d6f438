"""Code of others that imports W&B is given our module, where a program has put it in W&B's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

from otel_ml.compat import wandb
from otel_ml.compat.tracking.place_of_the_original import original_in_its_place
from otel_ml.testing import capture
from tests.e2e.jobs import environment, finished
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


@contextmanager
def in_the_place_of(package: str, ours: ModuleType) -> Iterator[None]:
    import_module(package)  # is put back after the test; with its parts alone a later import would be incomplete
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, ours)
        yield
    with original_in_its_place(package):
        pass  # our submodules go


@pytest.fixture
def framework() -> Iterator[ModuleType]:
    with in_the_place_of("wandb", wandb):
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
    with pytest.raises(Exception, match="API key") as told:
        framework.wandb.Api().run("team/pages/none")
    assert type(told.value).__module__.startswith("wandb.errors")
    assert not hasattr(framework.wandb, "no_such_name")


def test_a_library_finds_mlflows_limits_where_ours_stands_in_its_place() -> None:
    from mlflow.utils import validation

    from otel_ml.compat import mlflow

    with in_the_place_of("mlflow", mlflow):
        library = ModuleType("library")
        exec("import mlflow", library.__dict__)

        # Optuna's MLflowCallback asks so.
        assert library.mlflow.utils.validation.MAX_TAG_VAL_LENGTH == validation.MAX_TAG_VAL_LENGTH
        assert sys.modules["mlflow"] is mlflow


IN_ITS_PLACE = """
import sys
from otel_ml.compat import {package}

sys.modules["{package}"] = {package}
"""


def run_in_its_place(package: str, program: str, tmp_path: Path) -> str:
    """Run a program that has put our module in the place of a package that nobody has imported; return what is said."""
    environ = environment(OTEL_ML_DIR=tmp_path / "runs", WANDB_MODE="offline")
    return finished([sys.executable, "-c", IN_ITS_PLACE.format(package=package) + dedent(program)], environ, tmp_path)


def test_submodules_of_wandb_are_imported_where_ours_stands_in_its_place(tmp_path: Path) -> None:
    said = run_in_its_place(
        "wandb",
        """
        import wandb.sdk.data_types as t
        import wandb.sdk.data_types.image
        from wandb.sdk.wandb_run import Run
        from wandb.sdk.lib.runid import generate_id
        import wandb.plot.utils
        from wandb.errors.errors import UnsupportedError
        from wandb.util import generate_id as ours
        import wandb.data_types, wandb.errors
        from otel_ml.compat.wandb import data_types, errors, plot, recording_run, util

        assert wandb is sys.modules["wandb"] and wandb.__name__ == "otel_ml.compat.wandb"
        assert wandb.sdk.data_types is t and t.image.Image.__module__ == "wandb.sdk.data_types.image"
        assert Run is wandb.Run is wandb.sdk.wandb_run.Run
        assert len(generate_id()) == 8
        assert sys.modules["wandb.sdk.lib.runid"].__file__.endswith("site-packages/wandb/sdk/lib/runid.py")
        assert wandb.plot is plot and wandb.data_types is data_types and ours is util.generate_id
        assert wandb.errors is errors and issubclass(wandb.errors.CommError, errors.Error)
        assert plot.__spec__.name == plot.__name__ == "otel_ml.compat.wandb.plot"
        with wandb.init(project="p") as run:
            assert isinstance(run, Run)

        # What W&B has imported itself is W&B's alone, and there is one of it.
        from wandb.sdk.artifacts.artifact import Artifact
        from otel_ml.compat.tracking.place_of_the_original import original_in_its_place
        with original_in_its_place("wandb"):
            import wandb as original
            import wandb.util as originals_util
            assert original.__file__.endswith("site-packages/wandb/__init__.py")
            assert original.Artifact is Artifact and original.util is originals_util is not util
            assert original.sdk.data_types is t and t.image.Image is original.Image
        assert sys.modules["wandb"] is wandb is not original and sys.modules["wandb.util"] is util
        try:
            import wandb.no_such_module
        except ModuleNotFoundError as error:
            assert error.name == "wandb.no_such_module"
        else:
            raise AssertionError("found")
        """,
        tmp_path,
    )

    assert "wandb.sdk.data_types at <string>:7 is accepted and not kept as it is: it is that of the package" in said
    assert "wandb.sdk.wandb_run at" not in said


def test_where_a_program_has_put_the_original_back_our_submodules_go_with_our_module(tmp_path: Path) -> None:
    run_in_its_place(
        "wandb",
        """
        from otel_ml.compat.tracking.place_of_the_original import original_in_its_place
        with original_in_its_place("wandb"):
            import wandb as original
        sys.modules["wandb"] = original

        assert wandb.data_types.PartitionedTable is original.data_types.PartitionedTable
        assert not [name for name, module in sys.modules.items()
                    if name.startswith("wandb.") and module.__name__.startswith("otel_ml")]
        import wandb.util, wandb.sdk.wandb_run
        assert wandb is original and wandb.util.__name__ == "wandb.util"
        """,
        tmp_path,
    )


def test_submodules_of_mlflow_are_imported_where_ours_stands_in_its_place(tmp_path: Path) -> None:
    said = run_in_its_place(
        "mlflow",
        """
        from mlflow.tracking import MlflowClient
        from mlflow.tracking.fluent import log_metric
        from mlflow.utils.validation import MAX_TAG_VAL_LENGTH
        import mlflow.pytorch
        from mlflow.sklearn import log_model
        import mlflow.entities as e
        from otel_ml.compat.mlflow.flavors import Flavor

        assert mlflow is sys.modules["mlflow"] and mlflow.__name__ == "otel_ml.compat.mlflow"
        assert MlflowClient is mlflow.tracking.MlflowClient and MAX_TAG_VAL_LENGTH > 1
        assert type(mlflow.pytorch) is Flavor and log_model.__self__.__class__ is Flavor
        assert e.RunStatus.to_string(e.RunStatus.FINISHED) == "FINISHED"
        assert callable(mlflow.sklearn.load_model)  # MLflow's own, whose module of that name is another one
        """,
        tmp_path,
    )

    assert "Traceback" not in said


def test_submodules_are_the_originals_where_the_original_stands_in_its_own_place() -> None:
    import wandb as original
    from wandb.sdk.lib import runid

    assert import_module("otel_ml.compat.wandb") is wandb
    assert runid.__name__ == "wandb.sdk.lib.runid"
    assert original.sdk.wandb_run.Run is original.Run is not wandb.Run
