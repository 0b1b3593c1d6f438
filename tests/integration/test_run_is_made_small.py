"""A run that is over takes less room, and is read and gone on with as before."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing

from otel_ml_exporters import StepRecord
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.replay import replay, run_info
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.integration.conftest import Bench
from tests.integration.steps import rows
from tests.otlp import FakeWriter
from tests.waiting import eventually

STEPS, METRICS = 700, 40


def values(step: int) -> Mapping[str, float]:
    return {f"train/metric_{number}": (step + 1) / (number + 3) for number in range(METRICS)}


def packed_records(run: RunFolder) -> int:
    with closing(sqlite3.connect(f"file:{run.database}?immutable=1", uri=True)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM records WHERE typeof(record) = 'blob'").fetchone()[0])


def test_a_run_that_is_over_is_small_and_still_read_replayed_corrected_and_gone_on_with(bench: Bench) -> None:
    first, second, replayed = RecordingExporter(), RecordingExporter(), RecordingExporter()
    service = bench.service({"recording": lambda: first})
    sender, writer = bench.sender(service), FakeWriter()
    for step in range(STEPS):
        assert sender.send("metrics", writer.step(step, values(step))).status == 200
    sender.send("logs", writer.goodbye())
    eventually(lambda: first.is_closed)
    service.stop(5)
    run = RunFolder(next(bench.folder.glob("*/run-1")))
    assert packed_records(run) >= STEPS

    assert list(records(run)) == first.records
    info = run_info(run, first.records)
    replay(first.records, info, {"recording": lambda: replayed}, timeout=60, progress=lambda _: None)
    assert rows(replayed) == rows(first)

    sender = bench.sender(bench.service({"recording": lambda: second}))
    again = FakeWriter(instance="again")
    for step in range(STEPS, STEPS + 5):
        assert sender.send("metrics", again.step(step, values(step))).status == 200
    evaluation = FakeWriter(rank=1, instance="evaluation")
    assert sender.send("metrics", evaluation.step(3, {"train/metric_0": 100.0, "eval/accuracy": 0.5})).status == 200
    for each in (again, evaluation):
        sender.send("logs", each.goodbye())
    eventually(lambda: second.is_closed)

    corrected = [record for record in second.records if isinstance(record, StepRecord) and record.step == 3]
    assert {name: value for record in corrected for name, value in record.values.items() if "otel_ml" not in name} == {
        "train/metric_0": (4 / 3 + 100.0) / 2,
        "eval/accuracy": 0.5,
    }
    assert sorted(step for step in rows(second) if step >= STEPS) == list(range(STEPS, STEPS + 5))
    both = [*first.records, *second.records]
    assert [record.seq for record in both] == list(range(1, len(both) + 1))
