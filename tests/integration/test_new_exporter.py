"""`otel-ml new-exporter`: what it writes is installed, tested and used as its README says, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_ml_exporters.contract import ExporterContract
from otel_ml_service.cli import main
from tests.integration.worker_process import environment
from tests.surroundings import SOURCES
from tests.waiting import eventually

JOB = """
import otel_ml
with otel_ml.init("docs", id="one"):
    for step in range(3):
        otel_ml.log({"loss": 0.5 + step}, step=step)
"""


def installed(project: Path, site: Path) -> Path:
    """Install a project as pip does, without its dependencies and without an index; return the folder."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([*command, str(project)], check=True, capture_output=True, timeout=200)
    return site


@pytest.mark.timeout(400)
def test_the_written_project_passes_the_contract_and_exports_a_run(tmp_path: Path) -> None:
    project = tmp_path / "clickhouse"
    assert main(["new-exporter", "click-house", "--out", str(project)]) == 0
    site = installed(project, tmp_path / "site")
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "click-house,jsonl"})
    environ["PYTHONPATH"] = os.pathsep.join([str(site), SOURCES])

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    tested = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False)
    subprocess.run([sys.executable, "-c", JOB], cwd=tmp_path, env=environ, check=True, timeout=200)

    clauses = [name for name in vars(ExporterContract) if name.startswith("test_")]
    assert f"{len(clauses)} passed" in tested.stdout, tested.stdout + tested.stderr
    stored = tmp_path / "runs" / "docs" / "one" / "click-house" / "values.csv"
    written = [f"step,{step},loss,{0.5 + step!r}" for step in range(3)]
    eventually(lambda: stored.exists() and stored.read_text().splitlines() == written, timeout=60)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Click House", "expected small letters"),
        ("../evil", "expected small letters"),
        ("wandb", "there is an exporter 'wandb' here"),
    ],
)
def test_a_name_that_cannot_be_one_is_refused_and_nothing_is_written(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-exporter", name, "--out", str(tmp_path / "new")]) == 2

    assert why in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")

    assert main(["new-exporter", "clickhouse", "--out", str(tmp_path)]) == 2

    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
