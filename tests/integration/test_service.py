"""The whole service, in this process, over real sockets."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from otel_ml_exporters import (
    Artifact,
    Exporter,
    Record,
    RunStatus,
    SpanBatch,
    StepRecord,
)
from otel_ml_exporters.testing import RecordingExporter
from tests.integration.conftest import Bench
from tests.integration.steps import rows, train
from tests.otlp import FakeWriter, third_party_request
from tests.waiting import eventually


def test_two_ranks_become_one_row_a_step_and_the_run_ends(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writers = [FakeWriter(rank=rank, world_size=2) for rank in range(2)]

    train(sender, writers, range(20))
    for writer in writers:
        sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    assert rows(recording) == {step: {"loss": step + 0.5} for step in range(20)}
    assert not any(isinstance(record, StepRecord) and record.amendment for record in recording.records)
    assert recording.ended_with is not None
    assert recording.ended_with.status == "finished"
    assert [record.seq for record in recording.records] == list(range(1, len(recording.records) + 1))
    account = sender.run(query="?writer=trainer-1")
    assert (account["recorded"], account["delivered"], account["lost"]) == (40, 40, {})
    assert (account["status"], account["pending"], account["last"]) == ("finished", 0, True)


def test_the_same_request_again_changes_nothing(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()

    for step in range(5):
        message = writer.step(step, {"tokens": 2.0}, reduction="sum")
        for _ in range(3):
            sender.send("metrics", message)
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    assert rows(recording) == {step: {"tokens": 2.0} for step in range(5)}


def test_one_stuck_exporter_of_two_does_not_touch_the_other(bench: Bench, recording: RecordingExporter) -> None:
    released = threading.Event()

    class Stuck(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            released.wait(60)
            super().export(records)

    stuck = Stuck()
    makers: dict[str, type[Exporter] | object] = {"recording": lambda: recording, "stuck": lambda: stuck}
    sender = bench.sender(bench.service(makers))  # type: ignore[arg-type]
    writer = FakeWriter()

    train(sender, [writer], range(200))
    sender.send("logs", writer.goodbye())
    eventually(lambda: len(rows(recording)) == 200)
    account = sender.run()
    released.set()
    eventually(lambda: stuck.is_closed)

    assert account["exporters"]["stuck"]["delivered_seq"] == 0
    assert account["pending"] > 0
    assert rows(stuck) == rows(recording)


def test_spans_and_inline_artifacts_arrive_and_no_name_leaves_the_runs_folder(
    bench: Bench, recording: RecordingExporter
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()
    sender.send("traces", writer.span("forward", 1))
    for name, path_in in (("model", "a/b.pt"), ("../../evil", "../../../etc/passwd")):
        attributes = {
            "ml.name": name,
            "ml.artifact.path_in": path_in,
            "ml.artifact.type": "model",
            "ml.artifact.uri": "/x",
        }
        sender.send("logs", writer.event("ml.artifact", b"content", attributes))
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    artifacts = [record for record in recording.records if isinstance(record, Artifact)]
    folder = bench.folder / "default" / "run-1" / "artifacts"
    assert [record.local.read_bytes() for record in artifacts if record.local] == [b"content", b"content"]
    assert all(folder in record.local.resolve().parents for record in artifacts if record.local)
    assert [span.name for record in recording.records if isinstance(record, SpanBatch) for span in record.spans] == [
        "forward"
    ]


def test_a_run_has_its_name_though_a_collector_put_what_it_scraped_in_front_of_what_a_rank_sent(
    bench: Bench, recording: RecordingExporter
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter(extra={"ml.experiment.name": "digits"})
    batch = third_party_request([{"name": "queue", "value": 3.0}])  # of the node: it knows the id alone
    batch.MergeFrom(writer.step(1, {"loss": 0.5}))

    sender.send("metrics", batch)
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    assert recording.run is not None
    assert (recording.run.experiment, recording.run.dir) == ("digits", bench.folder / "digits" / "run-1")


def test_jobs_at_once_are_runs_of_their_own(bench: Bench) -> None:
    exporters: dict[str, RecordingExporter] = {}

    class Filed(RecordingExporter):
        def start(self, run: object) -> None:
            super().start(run)  # type: ignore[arg-type]
            assert self.run is not None
            exporters[self.run.id] = self

    sender = bench.sender(bench.service({"recording": Filed}))
    for experiment in ("job-a", "job-b"):
        writer = FakeWriter(experiment=experiment, extra={"ml.experiment.name": "digits"})
        sender.send("metrics", writer.step(1, {"loss": 1.0}))
        sender.send("logs", writer.goodbye())
    eventually(lambda: len(exporters) == 2 and all(found.is_closed for found in exporters.values()))

    assert {run["id"] for run in sender.request("GET", "/otel_ml/runs").json} == {"job-a", "job-b"}
    assert sorted(path.name for path in (bench.folder / "digits").iterdir()) == ["job-a", "job-b"]


def test_a_failed_job_is_a_failed_run(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye("failed"))

    eventually(lambda: recording.is_closed)

    assert [record.status for record in recording.records if isinstance(record, RunStatus)] == ["failed"]
