"""A disk that changed what was written: the service starts, says so, and the run goes on."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_service.service import Service
from tests.integration.conftest import Bench, Sender
from tests.integration.test_crash import Process
from tests.otlp import FakeWriter
from tests.waiting import eventually, whole_lines

GARBAGE = b"\xa5" * 50_000


def begun(bench: Bench, steps: range, writer: FakeWriter) -> tuple[Service, Sender]:
    service = bench.service(exporters={"jsonl": {}}, end_silence_s=10)  # what the damage took is waited for
    sender = bench.sender(service)
    for step in steps:
        assert sender.send("metrics", writer.step(step, {"loss": float(step)})).status == 200
    return service, sender


def rows(folder: Path) -> list[dict[str, object]]:
    file = folder / "default" / "run-1" / "metrics.jsonl"
    lines = whole_lines(file) if file.exists() else []
    return [row for line in lines if "loss" in (row := json.loads(line)).get("values", {})]


@pytest.mark.parametrize("where", ["nothing is left", "the last pages"])
def test_a_run_whose_database_was_damaged_goes_on_and_says_so(bench: Bench, where: str) -> None:
    writer = FakeWriter()
    service, _ = begun(bench, range(20), writer)
    eventually(lambda: len(rows(bench.folder)) >= 19)
    service.stop(5.0)
    database = bench.folder / "default" / "run-1" / "state" / "run.db"
    content = database.read_bytes()
    database.write_bytes(GARBAGE if where == "nothing is left" else content[:-20_000] + GARBAGE[:20_000])

    service, sender = begun(bench, range(20, 40), writer)
    sender.send("logs", writer.goodbye())
    eventually(lambda: sender.run()["status"] == "finished" and sender.run()["pending"] == 0)

    account = sender.run()
    assert any("run.db was damaged" in notice and "is kept" in notice for notice in account["notices"])
    stored = rows(bench.folder)
    assert [row["step"] for row in stored if row["step"] >= 20] == list(range(20, 40))  # type: ignore[operator]
    assert all(row["values"] == {"loss": float(row["step"])} for row in stored if "otel_ml/lag" not in row["values"])  # type: ignore[arg-type, operator]
    seqs = [row["seq"] for row in stored]
    assert seqs == sorted(set(seqs))  # type: ignore[type-var]


def test_embedded_a_damaged_database_does_not_keep_the_service_from_starting(tmp_path: Path) -> None:
    process = Process(tmp_path)
    writer = FakeWriter()
    try:
        sender = process.start("--embedded")
        for step in range(10):
            sender.send("metrics", writer.step(step, {"loss": float(step)}))
        eventually(lambda: len(process.lines()) >= 9)
        process.end(signal.SIGKILL)
        (tmp_path / "runs" / "default" / "run-1" / "state" / "run.db").write_bytes(GARBAGE)

        sender = process.start("--embedded")
        for step in range(10, 20):
            sender.send("metrics", writer.step(step, {"loss": float(step)}))
        sender.send("logs", writer.goodbye())
        eventually(process.ended)
    finally:
        process.close()

    stored = [line["step"] for line in process.lines() if "loss" in line["values"]]  # type: ignore[operator]
    assert stored[-10:] == list(range(10, 20))
    assert set(stored) >= set(range(9))


def test_a_run_of_which_something_unforeseen_is_stored_holds_up_no_other_run(bench: Bench) -> None:
    service, sender = begun(bench, range(5), FakeWriter())
    eventually(lambda: len(rows(bench.folder)) >= 4)
    service.stop(5.0)
    with closing(sqlite3.connect(bench.folder / "default" / "run-1" / "state" / "run.db")) as database, database:
        database.execute("INSERT OR REPLACE INTO facts VALUES ('rejected', 'many')")

    service, sender = begun(bench, range(5, 7), FakeWriter())
    other = FakeWriter(experiment="run-2")
    for step in range(3):
        assert sender.send("metrics", other.step(step, {"loss": float(step)})).status == 200
    sender.send("logs", other.goodbye())

    assert eventually(lambda: (sender.run("run-2") or {}).get("status") == "finished")
