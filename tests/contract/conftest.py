from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.stored import RUN_ID


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a run as the service lays it out; the working directory is a folder of the test."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "digits" / RUN_ID
    folder.mkdir(parents=True)
    return folder
