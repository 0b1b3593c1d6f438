"""What was not delivered before a stop, or not kept at the disk limit, is delivered later."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_ml_exporters import (
    PermanentExportError,
    Record,
    RetryableExportError,
    RunInfo,
)
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.live_runs.live_run import LiveRun
from otel_ml_service.stored_runs.read_records import records as stored_records
from otel_ml_service.stored_runs.replay import replay
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.integration.conftest import Bench
from tests.integration.steps import rows, train
from tests.otlp import FakeWriter
from tests.waiting import eventually


def test_a_stop_in_mid_run_keeps_everything_for_the_next_start(bench: Bench) -> None:
    first, second = RecordingExporter(), RecordingExporter()
    service = bench.service({"recording": lambda: first})
    writers = [FakeWriter(rank=rank, world_size=2) for rank in range(2)]
    train(bench.sender(service), writers, range(10))
    train(bench.sender(service), writers[:1], range(10, 11))
    service.stop(5)

    sender = bench.sender(bench.service({"recording": lambda: second}))
    train(sender, writers[1:], range(10, 11))
    train(sender, writers, range(11, 20))
    for writer in writers:
        sender.send("logs", writer.goodbye())
    eventually(lambda: second.is_closed)

    both = [*first.records, *second.records]
    assert [record.seq for record in both] == list(range(1, len(both) + 1))
    assert {**rows(first), **rows(second)} == {step: {"loss": step + 0.5} for step in range(20)}


def test_what_an_exporter_had_not_taken_before_the_stop_it_gets_at_the_next_start(bench: Bench) -> None:
    away = RecordingExporter()

    class Away(RecordingExporter):
        def start(self, run: RunInfo) -> None:
            raise RetryableExportError("no route to host")

    service = bench.service({"recording": Away})
    sender, writer = bench.sender(service), FakeWriter()
    train(sender, [writer], range(5))
    sender.send("logs", writer.goodbye())
    eventually(lambda: (run := sender.run()) and run["status"] == "finished")
    service.stop(0.1)

    bench.service({"recording": lambda: away})
    eventually(lambda: away.is_closed)

    assert rows(away) == {step: {"loss": float(step)} for step in range(5)}


def test_at_the_disk_limit_the_slowest_exporter_loses_its_place_and_replay_fills_it(
    bench: Bench, recording: RecordingExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_ml_service.live_runs.engine_loop._DISK_S", 0.05)  # else a look every few seconds
    released = threading.Event()

    class Stuck(RecordingExporter):
        max_batch = 1

        def export(self, records: Sequence[Record]) -> None:
            released.wait(60)
            super().export(records)

    def keep_up(run: LiveRun | None) -> bool:
        return run is not None and not run.pipelines.behind("recording") and not run.pipelines.behind("jsonl")

    stuck = Stuck()
    makers = {"recording": lambda: recording, "stuck": lambda: stuck}
    service = bench.service(makers, exporters={"jsonl": {}}, dir_max=100_000)
    sender, writer = bench.sender(service), FakeWriter()
    limit = "The limit of 100000 B (OTEL_ML_DIR_MAX) is reached"
    steps = 0
    while not any(limit in notice for notice in (sender.run() or {"notices": ()})["notices"]):
        assert steps < 5000
        train(sender, [writer], range(steps, steps + 10))
        steps += 10
        eventually(lambda: keep_up(service._runs.get("run-1")))  # only one is slow
    run = service._runs.get("run-1")
    assert run is not None
    eventually(lambda: run.outbox.first_seq > 1)
    released.set()
    sender.send("logs", writer.goodbye())
    eventually(lambda: stuck.is_closed and recording.is_closed)
    account = sender.run()
    service.stop(5)

    lost = sum(account["exporters"]["stuck"]["lost"].values())
    assert lost > 0
    assert len(stuck.records) + lost == len(recording.records)
    assert rows(recording) == {step: {"loss": float(step)} for step in range(steps)}
    assert sum(limit in notice for notice in account["notices"]) == 1
    assert {name: account["exporters"][name]["lost"] for name in ("recording", "jsonl")} == {
        "recording": {},
        "jsonl": {},
    }
    # What is not in run.db any more is still in metrics.jsonl.
    folder = RunFolder(bench.folder / "default" / "run-1")
    filled = RecordingExporter()
    recorded = list(stored_records(folder))
    replay(recorded, run.info, {"stuck": lambda: filled}, timeout=20, progress=lambda delivered: None)
    assert [record.seq for record in filled.records] == [record.seq for record in recording.records]
    assert rows(filled) == rows(recording)


def test_what_a_backend_refused_is_counted_and_a_replay_brings_it_once_the_reason_is_gone(bench: Bench) -> None:
    class Refusing(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            if any(getattr(record, "step", None) == 3 for record in records):
                raise PermanentExportError("step 3 is bad")
            super().export(records)

    refusing, later = Refusing(), RecordingExporter()
    service = bench.service({"recording": lambda: refusing})
    sender, writer = bench.sender(service), FakeWriter()
    train(sender, [writer], range(6))
    sender.send("logs", writer.goodbye())
    eventually(lambda: (run := sender.run()) and run["status"] == "finished" and not run["pending"])
    account = eventually(lambda: (run := sender.run()) and run["notices"] and run)
    service.stop(5)

    folder = RunFolder(Path(account["dir"]))
    info = RunInfo("again", "other", "again", bench.folder / "other" / "again", 0.0)
    replay(list(stored_records(folder)), info, {"recording": lambda: later}, timeout=20, progress=lambda _: None)

    assert sorted(rows(refusing)) == [0, 1, 2, 4, 5]
    assert account["exporters"]["recording"]["lost"] == {"step 3 is bad": 1}
    assert account["lost"]["recording: step 3 is bad"] == 1
    assert [said for said in account["notices"] if "does not take step 3: step 3 is bad. It is set aside" in said]
    assert sorted(rows(later)) == [0, 1, 2, 3, 4, 5]
