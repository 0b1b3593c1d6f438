from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import ROOT
from tests.packaging.clean_environment import succeeded


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this repository, for this interpreter."""
    folder = tmp_path_factory.mktemp("wheel")
    succeeded([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT], folder)
    [built] = folder.glob("otel_ml-*.whl")
    return built
