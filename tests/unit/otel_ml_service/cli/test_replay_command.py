"""`otel-ml replay`: a recorded run into other exporters."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.records import RunStatus, Span, SpanBatch
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import history
from tests.otlp import FakeWriter
from tests.otlp_server import otlp_server
from tests.plugin_package import install
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, environment, otel_ml

pytestmark = pytest.mark.long


def test_replay_writes_a_run_to_another_exporter_with_every_value(tmp_path: Path) -> None:
    recorded = digits_records(steps=20)
    run = write_run(tmp_path, "01abc", recorded, exporters=[])

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl")

    assert done.returncode == 0, done.stderr
    assert "jsonl: 25 records" in done.stdout
    run.database.unlink()  # what is left is what the exporter wrote
    assert history(records(run)).series == history(recorded).series


def test_what_has_no_page_of_the_run_is_said_to_have_its_records(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2), exporters=[])

    with otlp_server() as server:
        done = otel_ml(tmp_path, "replay", "01abc", "--to", "otlp", OTEL_EXPORTER_OTLP_ENDPOINT=server.url)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "otlp: 5 records given to the exporter"


@pytest.mark.parametrize(("gone", "left_out"), [("nothing", 0), ("the first three", 3), ("run.db", 5)])
def test_spans_that_no_record_of_the_run_has_are_said_to_be_left_out(tmp_path: Path, gone: str, left_out: int) -> None:
    spans = [
        SpanBatch(seq, (Span("1" * 32, f"{seq:016x}", None, "forward", 1, 2, "trainer", 0, "step", seq),))
        for seq in range(1, 6)
    ]
    run = write_run(tmp_path, "01abc", [*spans, RunStatus(6, 2000.0, "finished")])
    with closing(sqlite3.connect(run.database)) as connection, connection:  # as the disk limit does
        connection.execute("DELETE FROM records WHERE seq <= ?", (3 if gone == "the first three" else 0,))
    if gone == "run.db":
        run.database.unlink()

    with otlp_server() as server:
        done = otel_ml(tmp_path, "replay", "01abc", "--to", "traces", OTEL_ML_TRACES_ENDPOINT=server.url)

    said = [line for line in done.stderr.splitlines() if "spans.jsonl" in line]
    assert said == [f"spans.jsonl: {left_out} spans left out: no record of the run has them."][: bool(left_out)]


def test_replaying_twice_doubles_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=20), exporters=["jsonl"])
    before = run.jsonl.read_bytes()

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl")

    assert done.returncode == 0, done.stderr
    assert run.jsonl.read_bytes() == before


def test_replay_into_another_experiment_leaves_the_source_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=20))

    done = otel_ml(tmp_path, "replay", str(run.jsonl), "--to", "jsonl", "--experiment", "copies")

    copy = RunFolder(tmp_path / "copies" / "01abc")
    assert done.returncode == 0, done.stderr
    assert copy.jsonl.read_bytes() == run.jsonl.read_bytes()


def test_replay_merges_what_came_too_late_and_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5))
    writer = FakeWriter(experiment="01abc", rank=3)
    for name, reduction in (("samples", "sum"), ("loss", "mean"), ("new", "mean")):
        body = writer.step(2, {name: 32.0}, reduction=reduction).SerializeToString()
        with (run.path / "late.otlp").open("ab") as file:
            file.write(len(body).to_bytes(4, "big") + body)

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl", "--experiment", "copies")

    copy = history(records(RunFolder(tmp_path / "copies" / "01abc")))
    assert done.returncode == 0, done.stderr
    assert "late.otlp: 2 values merged" in done.stdout
    assert "late.otlp: not merged, the step's own records would be needed: loss" in done.stdout
    assert (copy.get("samples")[2], copy.get("new"), copy.get("loss")[2]) == (160.0, {2: 32.0}, 2.0 / 3)


def test_what_a_disk_has_damaged_in_late_otlp_is_left_out_and_said(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5))
    body = FakeWriter(experiment="01abc", rank=3).step(2, {"new": 32.0}, reduction="mean").SerializeToString()
    for content in (b"\xff" * 20, body):
        with (run.path / "late.otlp").open("ab") as file:
            file.write(len(content).to_bytes(4, "big") + content)

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl", "--experiment", "copies", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["late"] == {
        "values": 1, "not_merged": [], "torn_bytes": 0, "damaged_requests": 1
    }  # fmt: skip
    assert "late.otlp: 1 request cannot be read and is left out: the file is damaged." in done.stderr


def test_a_run_whose_service_was_left_with_a_damaged_state_is_written_by_what_its_folder_says(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5), exporters=[])
    with closing(sqlite3.connect(run.database)) as connection:
        connection.execute("INSERT OR REPLACE INTO engine VALUES ('run', x'ffff')")
        connection.commit()
    before = run.database.read_bytes()

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl", "--experiment", "copies")

    assert done.returncode == 0, done.stderr
    assert len(history(records(RunFolder(tmp_path / "copies" / "01abc"))).get("loss")) == 5
    assert run.database.read_bytes() == before


UPLOADING = """
from otel_ml_exporters import Exporter, RetryableExportError

class Uploading(Exporter):
    def start(self, run): pass
    def export(self, records): pass
    def shutdown(self, timeout, status): raise RetryableExportError("The upload was not finished within 60 s.")
"""


def test_an_exporter_that_could_not_end_what_it_was_given_has_not_taken_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=5))
    package = install(tmp_path / "site", {"acme": UPLOADING}, "uploading = acme:Uploading")
    monkeypatch.syspath_prepend(str(package))

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "uploading")

    assert done.returncode == 1
    assert "Exporter 'uploading': The upload was not finished within 60 s." in done.stderr


def test_an_exporter_that_cannot_write_is_said_to_be_waited_for_and_for_how_long(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2))
    (tmp_path / "taken").touch()

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl", "--experiment", "taken", "--timeout", "1")

    why, waits, given_up = done.stderr.splitlines()
    assert done.returncode == 1
    assert "cannot be written to" in why
    assert waits == "01abc: waits for jsonl, for at most 1 s without progress (--timeout)"
    assert "Put it right and replay again" in given_up


def test_replay_names_an_unknown_exporter(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=2))

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonll")

    assert done.returncode == 1
    assert "Did you mean 'jsonl'?" in done.stderr


def test_replay_waits_for_the_service_of_a_job_that_has_just_ended(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=20), exporters=[])
    command = [*PROGRAM, "replay", "latest", "--to", "jsonl"]
    service = Outbox(run.database)
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        service.close()

    assert "The service of run 01abc is still at work" in said
    assert process.returncode == 0
    assert len(history(records(run)).get("loss")) == 20
    assert run.jsonl.exists()


def test_replay_has_an_object_for_every_run_and_exporter(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=5), exporters=[])
    body = FakeWriter(experiment="01abc", rank=3).step(2, {"loss": 32.0}, reduction="mean").SerializeToString()
    (run.path / "late.otlp").write_bytes(len(body).to_bytes(4, "big") + body + b"torn")

    done = otel_ml(tmp_path, "replay", "01abc", "--to", "jsonl", "--json")

    [row] = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0, done.stderr
    assert row == {
        "id": "01abc", "experiment": "digits", "exporter": "jsonl", "records": len(digits_records(steps=5)),
        "lost": {}, "url": str(run.jsonl), "dir": str(run.path),
        "late": {"values": 0, "not_merged": ["loss"], "torn_bytes": 4, "damaged_requests": 0},
    }  # fmt: skip
    assert "late.otlp: not merged" in done.stderr
