"""No test hears what the developer's shell says: not in its process, not in a fixture, not in a job of theirs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml._internal.identity
from otel_ml import env as worker
from otel_ml_service import env as service
from tests.e2e.jobs import all_finished, environment, processes, the_run_in
from tests.surroundings import is_the_shells, reach_loopback

ROOT = Path(__file__).resolve().parents[2]

JOB = """
import otel_ml
with otel_ml.init(exporters="jsonl"):
    otel_ml.log({"loss": 1.0}, step=1)
"""


@pytest.fixture(scope="module")
def run_of_a_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that is started before any fixture of a test."""
    with processes([([sys.executable, "-c", JOB], environment())], tmp_path_factory.mktemp("job")) as started:
        all_finished(started)
    return the_run_in(Path(os.environ["OTEL_ML_DIR"]))


@pytest.fixture(scope="module")
def variables_of_a_fixture() -> dict[str, str]:
    return dict(os.environ)


def test_a_fixture_of_a_module_records_into_the_folder_of_the_tests(
    run_of_a_fixture: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert run_of_a_fixture.is_relative_to(tmp_path_factory.getbasetemp())
    assert run_of_a_fixture.parent.name == "default"
    assert '"loss":1.0' in (run_of_a_fixture / "metrics.jsonl").read_text()


def test_a_fixture_of_a_module_sees_only_what_the_tests_set(variables_of_a_fixture: dict[str, str]) -> None:
    heard = {name: value for name, value in variables_of_a_fixture.items() if HOSTILE.get(name) == value}
    assert {*heard} - {"LANG", "LC_ALL", "TZ", "http_proxy"} == set()
    assert variables_of_a_fixture["WANDB_MODE"] == "offline"
    # What packages set that other tests of this process have imported comes on top.
    assert {"OTEL_ML_DIR", "WANDB_MODE", "WANDB_ERROR_REPORTING"} <= {*filter(is_the_shells, variables_of_a_fixture)}


HOSTILE = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "OTEL_ML_EXPERIMENT_NAME": "x",
    "OTEL_ML_RANK": "7",
    "OTEL_SDK_DISABLED": "true",
    "WANDB_MODE": "online",
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "RANK": "3",
    "WORLD_SIZE": "8",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "XDG_RUNTIME_DIR": "/nonexistent",
    "PYTHONWARNINGS": "error",
    "LANG": "C",
    "LC_ALL": "C",
    "TZ": "Asia/Kathmandu",
    "http_proxy": "http://127.0.0.1:9",
}


def test_the_tests_pass_in_a_shell_that_says_otherwise(tmp_path: Path) -> None:
    the_developers = tmp_path / "the developer's runs"
    inner = [f"{Path(__file__)}::{test.__name__}" for test in (
        test_a_fixture_of_a_module_records_into_the_folder_of_the_tests,
        test_a_fixture_of_a_module_sees_only_what_the_tests_set,
    )]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", f"--basetemp={tmp_path / 'tests'}", *inner],
        cwd=ROOT,
        env=environment(OTEL_ML_DIR=the_developers, **HOSTILE),
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert not the_developers.exists()


def variables_of_launchers() -> set[str]:
    """Names of variables in the modules that find out who a process is."""
    [folder] = otel_ml._internal.identity.__path__
    sources = "".join(path.read_text() for path in Path(folder).glob("*.py"))
    return {*re.findall(r'"([A-Z]+(?:_[A-Z]+)+|RANK)"', sources)} - {"LC_ALL", "SC_CLK_TCK", "BY_HAND"}


def test_every_variable_that_changes_a_job_is_forgotten() -> None:
    own = {variable.name for variable in (*worker.VARIABLES, *worker.STANDARD, *service.VARIABLES)}
    launchers = variables_of_launchers()
    assert len(own) > 40
    assert {"RANK", "SLURM_PROCID", "PMIX_NAMESPACE"} < launchers
    assert {name for name in own | launchers if not is_the_shells(name)} == set()


def test_no_proxy_is_asked_for_the_servers_of_tests() -> None:
    environ = {"http_proxy": "http://proxy", "no_proxy": "example.org"}
    reach_loopback(environ)
    assert environ["no_proxy"] == "example.org,localhost,127.0.0.1,::1"
    assert environ["NO_PROXY"] == "localhost,127.0.0.1,::1"
