"""What is said of a report that is to be attached to a run which a service opens meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.attach_artifact import NotAttachedError, attach
from tests.hooks import before
from tests.recorded_run import digits_records, write_run


def test_a_run_that_is_opened_once_it_was_over_is_being_recorded_and_does_not_lack_its_file(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=2))
    report = tmp_path / "report.html"
    report.touch()
    opened: list[Outbox] = []

    is_read = before(
        "sqlite3.connect", lambda file: "run.db?" in str(file), lambda: opened.append(Outbox(run.database))
    )
    with is_read, pytest.raises(NotAttachedError, match="'01abc' is being recorded"):
        attach(run, report, name="report", kind="report", timeout=0.5)

    opened.pop().close()
