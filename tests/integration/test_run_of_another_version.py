"""A run that newer code has stored: its senders keep what they have, and those of other runs are served."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from otel_ml_exporters.records import StepRecord
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.versions import RUN
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter
from tests.waiting import eventually


def mark_as(database: Path, version: int) -> None:
    """Say of a run that it was stored in this version."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute(f"PRAGMA user_version = {version}")


def test_what_comes_for_a_run_of_a_newer_version_is_refused_until_a_service_reads_it(bench: Bench) -> None:
    exporters = [RecordingExporter() for _ in range(3)]
    mine, other = FakeWriter(experiment="mine"), FakeWriter(experiment="other")
    first = bench.service({"recording": lambda: exporters[0]})
    assert bench.sender(first).send("metrics", mine.step(1, {"loss": 1.0})).status == 200
    eventually(lambda: any(isinstance(record, StepRecord) for record in exporters[0].records))
    first.stop(5.0)
    database = bench.folder / "default" / "mine" / "state" / "run.db"

    mark_as(database, RUN + 1)
    second = bench.service({"recording": lambda: exporters[1]})
    further = mine.step(2, {"loss": 2.0})
    refused = bench.sender(second).send("metrics", further)
    taken = bench.sender(second).send("metrics", other.step(1, {"loss": 3.0}))
    second.stop(5.0)

    assert (refused.status, taken.status) == (503, 200)
    assert b"mine" in refused.body
    assert f"version {RUN + 1}".encode() in refused.body
    mark_as(database, RUN)
    third = bench.service({"recording": lambda: exporters[2]})
    assert bench.sender(third).send("metrics", further).status == 200
