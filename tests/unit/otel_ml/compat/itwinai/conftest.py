from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of `savedir` is a folder where the program runs."""
    monkeypatch.chdir(tmp_path)
