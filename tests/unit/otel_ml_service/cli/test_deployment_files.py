from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_ml_service.cli import examples_command
from otel_ml_service.cli.deployment_files_command import FOLDERS, command
from tests.e2e.jobs import ROOT


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_writes_what_the_pages_speak_of_and_nothing_over_what_is_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(tmp_path / "new")])
    again = CliRunner().invoke(command, [str(tmp_path / "new")])

    assert done.exit_code == 0
    for name in FOLDERS:
        assert files_in(tmp_path / "new" / name) == files_in(ROOT / name)
    assert (tmp_path / "new" / "collector-config" / "start").stat().st_mode & 0o100
    assert again.exit_code == 2
    assert "choose another folder" in again.output


def test_examples_are_written_here_with_the_paths_that_the_pages_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(examples_command.command)
    again = CliRunner().invoke(examples_command.command)

    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md") if "adr" not in path.parts]
    named = {found for text in pages for found in re.findall(r"(?<![\w/])examples/[\w/]+\.(?:py|ipynb)\b", text)}
    assert done.output == "examples\n"
    assert {"examples/diagnose.py", "examples/migrate/lightning_trainer.py"} <= named
    assert [name for name in sorted(named) if not (tmp_path / name).is_file()] == []
    assert again.exit_code == 2
    assert "'examples' is there: choose another folder." in again.output


def started(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Start the gateway of files that were written, where the PATH has what every system has, and `folder`/bin."""
    CliRunner().invoke(command, [str(folder / "files")])
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("bash", "dirname", "env"):
        (tools / name).symlink_to(shutil.which(name) or name)
    environment = {"PATH": str(tools), **settings}
    script = folder / "files" / "collector-config" / "start"
    return subprocess.run([str(script), "gateway"], env=environment, capture_output=True, text=True, check=False)


def test_without_a_clone_and_a_collector_it_is_said_how_to_get_one_in_both_ways(tmp_path: Path) -> None:
    done = started(tmp_path)

    assert done.returncode == 1
    assert "no otelcol-contrib or otelcol-k8s on the PATH" in done.stderr
    assert "opentelemetry-collector-releases/releases/tag/v0.159.0" in done.stderr
    assert "make collector" in done.stderr


def test_a_collector_that_is_named_and_no_program_is_said_to_be_none(tmp_path: Path) -> None:
    done = started(tmp_path, OTELCOL="/nowhere/otelcol")

    assert done.returncode == 1
    assert done.stderr.startswith("OTELCOL=/nowhere/otelcol is no program.")


@pytest.mark.parametrize("name", ["otelcol-contrib", "otelcol-k8s"])
def test_without_a_clone_an_official_distribution_on_the_path_is_started(tmp_path: Path, name: str) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / name
    program.write_text('#!/bin/bash\necho "$0 $*"\n')
    program.chmod(0o755)

    done = started(tmp_path)

    config = tmp_path / "files" / "collector-config" / "gateway.yaml"
    assert (done.returncode, done.stdout) == (0, f"{program} --config {config}\n"), done.stderr


def test_the_version_that_is_named_is_the_one_that_is_tested() -> None:
    manifest = (ROOT / "collector-config" / "builder.yaml").read_text(encoding="utf-8")
    named = "otlpreceiver v0.159.0"

    assert named in manifest
    for page in ("collector-config/start", "collector-config/README.md", "docs/deployment.md"):
        assert "0.159.0" in (ROOT / page).read_text(encoding="utf-8")
