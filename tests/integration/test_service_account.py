"""What a service says of itself: notices, health, telemetry and a log for each run."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from otel_ml.config import Endpoint
from otel_ml_exporters import (
    PermanentExportError,
    Record,
    StepRecord,
    Text,
)
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.cli.checks.probe import probe
from otel_ml_service.service import Service
from otel_ml_service.telemetry import CATALOGUE
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter
from tests.waiting import eventually


def test_each_run_has_a_log_of_what_concerns_it(bench: Bench) -> None:
    class Refusing(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            assert self.run is not None
            raise PermanentExportError(f"no room for {self.run.id}.")

    service = bench.service({"refusing": Refusing})
    sender = bench.sender(service)
    for experiment in ("job-a", "job-b"):
        writer = FakeWriter(experiment=experiment)
        sender.send("metrics", writer.step(1, {"loss": 1.0}))
        sender.send("logs", writer.event("ml.notice", f"Said by {experiment}."))
        sender.send("logs", writer.goodbye())
    logs = {name: bench.folder / "default" / name / "service.log" for name in ("job-a", "job-b")}
    eventually(
        lambda: all((run := sender.run(name)) and run["exporters"]["refusing"]["state"] == "stopped" for name in logs)
    )

    for name, other in (("job-a", "job-b"), ("job-b", "job-a")):
        text = logs[name].read_text()
        assert f"Said by {name}." in text
        assert f"no room for {name}." in text
        assert other not in text


def test_notices_are_counted_in_every_answer_and_told_by_the_run(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()
    sentence = "No step is set; call otel_ml.set_step(i) or pass step=."
    before = sender.send("metrics", writer.step(0, {"loss": 1.0})).headers["otel-ml-notices"]
    sender.send("logs", writer.event("ml.notice", sentence))

    eventually(lambda: (run := sender.run()) and sentence in run["notices"])

    assert before == "0"
    assert sender.send("metrics", writer.step(1, {"loss": 1.0})).headers["otel-ml-notices"] == "1"


def test_what_is_acknowledged_and_not_decided_yet_is_pending_and_its_writer_has_not_left(
    bench: Bench, recording: RecordingExporter
) -> None:
    services: list[Service] = []
    may_decide = threading.Event()

    def clock() -> float:  # the engine asks what time it is between taking requests and deciding them
        if services and not services[0].is_settled:
            may_decide.wait(20.0)
        return time.time()

    services.append(bench.service({"recording": lambda: recording}, clock=clock))
    sender, writer = bench.sender(services[0]), FakeWriter(instance="rank-0")
    try:
        sender.send("metrics", writer.step(0, {"loss": 1.0}))
        may_decide.set()
        eventually(lambda: (sender.run() or {}).get("delivered"))
        may_decide.clear()
        sender.send("metrics", writer.step(1, {"loss": 1.0}))
        sender.send("logs", writer.goodbye())
        meanwhile = sender.run(query="?writer=rank-0")
    finally:
        may_decide.set()

    assert meanwhile["pending"] > 0
    assert not meanwhile["left"]
    eventually(lambda: sender.run(query="?writer=rank-0")["left"] and sender.run()["pending"] == 0)
    assert sender.run(query="?writer=rank-0")["last"]


def test_of_a_run_that_has_ended_is_pending_what_a_backend_has_until_that_is_stored(bench: Bench) -> None:
    may_export, may_store, is_held = threading.Event(), threading.Event(), threading.Event()
    may_store.set()

    class Slow(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            may_export.wait(20.0)
            super().export(records)

    def clock() -> float:  # the engine asks what time it is before it stores positions
        if threading.current_thread().name == "otel-ml-engine" and not may_store.is_set():
            is_held.set()
            may_store.wait(20.0)
        return time.time()

    sender, writer = bench.sender(bench.service({"slow": Slow}, clock=clock)), FakeWriter(instance="rank-0")
    try:
        sender.send("metrics", writer.step(0, {"loss": 1.0}))
        sender.send("logs", writer.goodbye())
        eventually(lambda: (sender.run() or {}).get("status") == "finished")
        may_store.clear()
        assert is_held.wait(20.0)
        may_export.set()
        eventually(lambda: sender.run()["delivered"] == 1)
        meanwhile = sender.run()
    finally:
        may_export.set()
        may_store.set()

    assert meanwhile["exporters"]["slow"]["pending"] == 0
    assert meanwhile["pending"] > 0  # who leaves now may end this service, too
    eventually(lambda: sender.run()["pending"] == 0)


def test_health_and_metrics_are_there_for_machines(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    sender.send("metrics", FakeWriter().step(1, {"loss": 1.0}))

    health = sender.request("GET", "/healthz").json
    metrics = sender.request("GET", "/metrics").body.decode()

    assert health["service"] == "otel_ml"
    assert 'otel_ml_requests_total{signal="metrics"} 1' in metrics
    eventually(lambda: [run["id"] for run in sender.request("GET", "/otel_ml/runs").json] == ["run-1"])
    assert sender.request("GET", "/otel_ml/runs/nobody").status == 404


def test_every_entry_of_the_catalogue_is_filled_and_the_run_says_what_was_rejected(bench: Bench) -> None:
    class Picky(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            if any(isinstance(record, Text) for record in records):
                raise PermanentExportError("no texts here.")
            super().export(records)

    picky = Picky()
    service = bench.service({"picky": lambda: picky})
    sender, writer = bench.sender(service), FakeWriter()
    step = writer.step(0, {"loss": 1.0, "tokens": 2.0})
    sender.send("metrics", step)
    sender.send("metrics", step)
    wrong = writer.step(1, {"loss": 1.0})
    wrong.resource_metrics[0].scope_metrics[0].scope.attributes[0].value.int_value = -1
    assert sender.send("metrics", wrong).status == 200
    sender.send("logs", writer.event("ml.text", "hello", {"ml.name": "note"}))
    sender.send("metrics", b"\xff")
    probe(Endpoint(url=service.endpoint, headers={"authorization": f"Bearer {service.token}"} if service.token else {}))
    sender.send("metrics", writer.step(2, {"loss": 1.0}))
    sender.send("logs", writer.goodbye(dropped={"spool_full": 7}))
    eventually(lambda: picky.is_closed)

    text = sender.request("GET", "/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    types = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    found = {name.removeprefix("otel_ml_").removesuffix("_total").replace("_seconds", "_s") for _, _, name, _ in types}
    assert found == set(CATALOGUE)
    assert float(values['otel_ml_duplicate_total{run="run-1"}']) == 2
    assert float(values['otel_ml_dropped_total{reason="spool_full",run="run-1"}']) == 7
    assert float(values['otel_ml_lost_total{exporter="picky",run="run-1"}']) == 1
    assert float(values['otel_ml_lag{exporter="picky",run="run-1"}']) == 0
    assert float(values['otel_ml_delivered{exporter="picky",run="run-1"}']) == picky.records[-1].seq
    assert float(values["otel_ml_journal_bytes"]) == 0
    assert float(values["otel_ml_probes_total"]) == 1
    told = [record.values for record in picky.records if isinstance(record, StepRecord)]
    assert {row["otel_ml/rejected"] for row in told if "otel_ml/rejected" in row} == {1.0}


def test_of_the_rank_0_of_several_roles_one_is_to_print_the_notices(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    trainer, generator = FakeWriter(instance="trainer-0"), FakeWriter(instance="generator-0", role="generator")
    for writer in (trainer, generator):
        sender.send("metrics", writer.step(0, {"loss": 1.0}))
    sender.send("logs", trainer.event("ml.notice", "Rank 1 is slow."))
    eventually(lambda: (run := sender.run()) and run["notices"])

    first, second = (sender.run(query=f"?speaker={writer}") for writer in ("trainer-0", "generator-0"))
    sender.send("logs", trainer.goodbye())
    eventually(lambda: (run := sender.run(query="?writer=trainer-0")) and run["left"])
    sender.send("logs", generator.event("ml.notice", "Rank 2 is slow."))
    eventually(lambda: (run := sender.run()) and len(run["notices"]) == 2)
    third = sender.run(query="?speaker=generator-0")

    assert (first["speaks_from"], second["speaks_from"], second["told"]) == (0, None, 1)
    assert third["speaks_from"] == 1
