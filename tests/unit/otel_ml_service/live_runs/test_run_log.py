from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from otel_ml_service.live_runs.run_log import RunLog
from tests.full_disk import no_file_larger_than

_log = logging.getLogger("otel_ml_service.test")


def warn(log: RunLog, text: str) -> None:
    with log.speaking():
        _log.warning("%s", text)


def test_a_line_for_which_there_is_no_place_costs_nothing_but_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "exp" / "run"
    folder.mkdir(parents=True)
    log = RunLog("run", folder / "service.log")
    warn(log, "one")
    shutil.rmtree(tmp_path / "exp")
    (tmp_path / "exp").touch()

    warn(log, "two")

    (tmp_path / "exp").unlink()
    warn(log, "three")
    log.close()
    assert "three" in (folder / "service.log").read_text()
    assert "NotADirectoryError" in capsys.readouterr().err


def test_a_log_that_is_deleted_to_make_room_on_a_full_disk_begins_anew_once_there_is_some(tmp_path: Path) -> None:
    log = RunLog("run", tmp_path / "service.log")
    warn(log, "one")
    with no_file_larger_than(150):
        warn(log, "x" * 200)
        (tmp_path / "service.log").unlink()
        warn(log, "y" * 200)

    warn(log, "again")

    log.close()
    assert "again" in (tmp_path / "service.log").read_text()
