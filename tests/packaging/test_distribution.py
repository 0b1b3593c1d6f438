"""`make dist`: what an index gets is whole, and its wheel runs what the README says where nothing else is installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from otel_ml_service.stored_runs.read_records import is_over_within
from otel_ml_service.stored_runs.run_folders import find
from tests.e2e.jobs import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]  # it builds two wheels, and installs ten packages

README = (ROOT / "README.md").read_text(encoding="utf-8")


def succeeded(command: list[object], cwd: Path, **variables: str) -> str:
    """Run a command that sees neither this repository nor this environment."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    parts = [str(part) for part in command]
    done = subprocess.run(
        parts, cwd=cwd, env={**clean, **variables}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    said = succeeded([sys.executable, ROOT / ".ci" / "dist", folder / "out"], folder, DIST_PYTHONS=sys.executable)
    assert said.count("PASSED") == 3
    return folder / "out"


@pytest.fixture(scope="module")
def environment(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `bin` of an environment with the compiled wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("empty")
    [wheel] = dist.glob("*manylinux*.whl")
    succeeded([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    succeeded([sys.executable, "-m", "pip", "--python", "venv/bin/python", "install", "--quiet", wheel], folder)
    return folder / "venv" / "bin"


def test_the_sdist_can_be_built_and_tested_and_the_pure_wheel_has_nothing_compiled(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    [pure], [compiled] = dist.glob("*py3-none-any.whl"), dist.glob("*manylinux*.whl")

    assert {"pyproject.toml", "hatch_build.py", "native/module.c", "README.md", "LICENSE", "conftest.py"} <= names
    assert not [name for name in zipfile.ZipFile(pure).namelist() if name.endswith(".so")]
    assert [name for name in zipfile.ZipFile(compiled).namelist() if name.endswith(".so")]
    assert "otel_ml_service/cli/new_exporter/pyproject.toml.txt" in zipfile.ZipFile(pure).namelist()
    assert "otel_ml_service/cli/shipped/examples/diagnose.py" in zipfile.ZipFile(pure).namelist()


def test_the_wheel_runs_what_the_readme_says(environment: Path, tmp_path: Path) -> None:
    [program] = re.findall(r"<!-- file: train.py -->\n```python\n(.*?)```", README, re.DOTALL)
    commands = re.findall(r"^otel-ml (?:show|why) .*$", README, re.MULTILINE)
    (tmp_path / "train.py").write_text(program)

    succeeded([environment / "python", "train.py"], tmp_path)
    # The first start of a service compiles its modules: on a slow disk that may outlast the program.
    eventually(lambda: list(tmp_path.glob("otel-ml-runs/*/*/metrics.jsonl")), timeout=60)
    assert is_over_within(find("latest", tmp_path / "otel-ml-runs"), 60)
    said = [succeeded([environment / "otel-ml", *command.split()[1:]], tmp_path) for command in commands]

    assert [command.split()[1] for command in commands] == ["show", "why"]
    assert "100 steps" in said[0]
    assert succeeded([environment / "python", "-c", "import otel_ml._native"], tmp_path) == ""
