from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_service.cli import main
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run
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


@pytest.fixture
def live_run(tmp_path: Path) -> Iterator[RunFolder]:
    """Return a run that a service has open."""
    run = write_run(tmp_path, "01live", digits_records(steps=3), exporters=[])
    with closing(Outbox(run.database)):
        yield run
