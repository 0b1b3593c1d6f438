"""The wheel, installed without extras into a fresh environment, with nothing of this repository on the path."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.e2e.jobs import ROOT, the_run_in
from tests.packaging.clean_environment import environment_with, run, succeeded

pytestmark = pytest.mark.timeout(300)  # it builds a wheel and installs seven packages

OPTIONAL = ["tensorboard", "mlflow", "wandb", "torch", "grpc", "sklearn", "PIL", "matplotlib"]


TRAIN = """
import otel_ml
with otel_ml.init("minimal", exporters="jsonl") as run:
    for step in otel_ml.steps(range(3)):
        otel_ml.log({"n": 1}, reduce="sum")
"""

LAUNCH = """
import os, subprocess, sys
def rank(number):
    environment = {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2"}
    return subprocess.Popen([sys.executable, "train.py"], env=environment)
sys.exit(max(process.wait() for process in [rank(0), rank(1)]))
"""


PACKAGES = {"otel_ml", "otel_ml_exporters", "otel_ml_service"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install it as the README says, and return the environment's `bin`."""
    return environment_with(str(wheel), tmp_path_factory.mktemp("minimal"))  # pip install otel-ml


def test_the_wheel_holds_the_three_packages_and_their_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


@pytest.mark.parametrize("package", OPTIONAL)
def test_no_optional_package_comes_with_the_base_install(installed: Path, tmp_path: Path, package: str) -> None:
    assert "ModuleNotFoundError" in run([installed / "python", "-c", f"import {package}"], tmp_path).stderr


def test_two_processes_land_in_one_jsonl_run_without_any_extra(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "launch.py").write_text(LAUNCH)

    succeeded([installed / "python", "launch.py"], tmp_path, OTEL_ML_DIR=str(tmp_path / "runs"))
    run_folder = the_run_in(tmp_path / "runs")

    look = f"import otel_ml; print(otel_ml.read({str(run_folder)!r})['n'])"
    assert succeeded([installed / "python", "-c", look], tmp_path) == "([0, 1, 2], [2.0, 2.0, 2.0])\n"


@pytest.mark.parametrize("backend", ["mlflow", "wandb"])
def test_a_missing_backend_is_said_with_the_line_that_installs_it(
    installed: Path, tmp_path: Path, backend: str
) -> None:
    done = run([installed / "otel-ml", "serve", "--to", backend], tmp_path)

    assert done.returncode != 0
    assert f"pip install 'otel-ml[{backend}]'" in done.stderr


def test_grpc_is_said_with_the_line_that_installs_it(installed: Path, tmp_path: Path) -> None:
    program = "import otel_ml; otel_ml.init('x'); otel_ml.shutdown()"
    variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}

    assert "pip install 'otel-ml[grpc]'" in run([installed / "python", "-c", program], tmp_path, **variables).stderr


def test_the_command_line_works_without_any_extra(installed: Path, tmp_path: Path) -> None:
    assert "tensorboard" in succeeded([installed / "otel-ml", "exporters"], tmp_path)
    assert "OTEL_ML_DIR" in succeeded([installed / "otel-ml", "env"], tmp_path)


def test_the_catalogue_of_messages_comes_with_the_wheel(wheel: Path, installed: Path, tmp_path: Path) -> None:
    """`otel-ml explain` needs neither the network nor this repository."""
    shipped = zipfile.ZipFile(wheel).read("otel_ml_service/cli/errors.md").decode()

    assert shipped == (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert "OTEL_ML_SPOOL_MAX" in succeeded([installed / "otel-ml", "explain", "spool-full"], tmp_path)
