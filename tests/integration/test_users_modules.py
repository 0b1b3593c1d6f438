"""A user's own modules lie in the working directory, under names that the service imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from otel_ml._internal.transport.python_command import python_command
from tests.integration.worker_process import environment
from tests.otlp_server import eventually

SHADOWING = (
    "secrets",
    "queue",
    "click",
    "yaml",
    "orjson",
    "numpy",
    "socket",
    "json",
    "logging",
    "mlflow",
    "tensorboard",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project's root: training is a script in `scripts/`, so that the root is on nobody's path."""
    for name in SHADOWING:
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('this is our own {name}.py')\n")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(
        "import otel_ml\n"
        "with otel_ml.init('shadow', id='one', exporters='jsonl,mlflow') as run:\n"
        "    for step in otel_ml.steps(range(3)):\n"
        "        otel_ml.log({'loss': 1.0})\n"
    )
    return tmp_path


def test_a_users_modules_do_not_stand_in_for_those_of_the_service(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "scripts/train.py"],
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=100,
    )

    run = project / "runs" / "shadow" / "one"
    assert done.returncode == 0, done.stderr
    assert "did not start" not in done.stderr
    assert "this is our own" not in done.stderr + (run / "service.log").read_text()
    eventually((run / "metrics.jsonl").exists, within=60)
    eventually(lambda: otel_ml.read(run).get("loss") == ([0, 1, 2], [1.0, 1.0, 1.0]), within=60)


@pytest.mark.parametrize("version", [sys.version_info[:2], (3, 10)])
def test_a_python_of_ours_finds_what_is_on_pythonpath_and_not_what_lies_around(
    version: tuple[int, int], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = project / "plugins"
    plugins.mkdir()
    (plugins / "plugin.py").write_text("import queue, sys\nprint(__name__, sys.argv[1:], queue.Queue.__name__)\n")
    monkeypatch.setattr(sys, "version_info", version)
    command = python_command("plugin", "a", "-b")
    monkeypatch.undo()

    done = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(plugins)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stdout == "__main__ ['a', '-b'] Queue\n", done.stderr
