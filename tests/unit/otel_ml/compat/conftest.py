from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have files that the originals write into the working directory, and so do we, in the test's folder."""
    monkeypatch.chdir(tmp_path)
