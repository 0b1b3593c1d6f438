from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.recorded_run import digits_records, write_run


@pytest.fixture
def live_run(tmp_path: Path) -> Iterator[RunFolder]:
    """Return a run that a service has open."""
    run = write_run(tmp_path, "01live", digits_records(steps=3), exporters=[])
    with closing(Outbox(run.database)):
        yield run
