from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_service.cli import main
from tests.unit.otel_ml_service.cli.program import Run


@pytest.fixture
def otel_ml(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a folder of the test, and return (status, standard output, standard error)."""
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run
