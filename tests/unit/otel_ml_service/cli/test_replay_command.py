"""`otel-ml replay`: a recorded run into other exporters."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import history
from tests.otlp import FakeWriter
from tests.otlp_server import otlp_server
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
        "late": {"values": 0, "not_merged": ["loss"], "torn_bytes": 4},
    }  # fmt: skip
    assert "late.otlp: not merged" in done.stderr
