from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

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
