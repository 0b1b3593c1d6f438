"""The whole service, in this process, over real sockets."""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf import json_format

from otel_ml.exceptions import ConfigError
from otel_ml_exporters import (
    Artifact,
    Exporter,
    PermanentExportError,
    Record,
    RetryableExportError,
    RunInfo,
    RunStatus,
    SpanBatch,
    StepRecord,
    Text,
)
from otel_ml_exporters.config import EmbeddedRun, ServiceConfig
from otel_ml_exporters.runs.folders import RunFolder
from otel_ml_exporters.runs.replay import replay
from otel_ml_exporters.runs.source import records as stored_records
from otel_ml_exporters.service import Service
from otel_ml_exporters.telemetry import CATALOGUE
from otel_ml_exporters.testing import RecordingExporter
from tests.integration.conftest import Bench, Sender
from tests.otlp import FakeWriter, foreign
from tests.waiting import eventually


def rows(exporter: RecordingExporter, axis: str = "step") -> dict[int, dict[str, float]]:
    """Return step → values of what was exported, without the service's account of itself."""
    return {
        record.step: {name: value for name, value in record.values.items() if not name.startswith("otel_ml/")}
        for record in list(exporter.records)
        if isinstance(record, StepRecord) and record.axis == axis
    }


def train(sender: Sender, writers: Sequence[FakeWriter], steps: range) -> None:
    for step in steps:
        for writer in writers:
            assert sender.send("metrics", writer.step(step, {"loss": float(step + writer.rank)})).status == 200


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


@pytest.mark.parametrize("form", ["gzip", "json", "json and gzip", "chunked"])
def test_every_form_of_a_request_is_understood(bench: Bench, recording: RecordingExporter, form: str) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    message = FakeWriter().step(1, {"loss": 0.5})
    headers = {"content-type": "application/json" if "json" in form else "application/x-protobuf"}
    body = (
        json_format.MessageToJson(message, use_integers_for_enums=True).encode()
        if "json" in form
        else message.SerializeToString()
    )
    if "gzip" in form:
        body, headers["content-encoding"] = gzip.compress(body), "gzip"
    if form == "chunked":
        pieces = [body[:7], body[7:]]
        sender.connection.request("POST", "/v1/metrics", iter(pieces), headers, encode_chunked=True)
        answer = sender.connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    else:
        answered = sender.request("POST", "/v1/metrics", body, headers)
        assert (answered.status, answered.headers["content-type"]) == (200, headers["content-type"])

    eventually(lambda: rows(recording) == {1: {"loss": 0.5}})


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
    eventually(lambda: all(sender.run(name)["exporters"]["refusing"]["state"] == "stopped" for name in logs))

    for name, other in (("job-a", "job-b"), ("job-b", "job-a")):
        text = logs[name].read_text()
        assert f"Said by {name}." in text
        assert f"no room for {name}." in text
        assert other not in text


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


# Bad input: a clear error, nothing lost


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "text"),
    [
        ("/v1/metrics", b"\xff\xff\xff", {}, 400, "not an OTLP metrics request"),
        ("/v1/metrics", FakeWriter().step(1, {"a": 1.0}).SerializeToString()[:-2], {}, 400, "not an OTLP"),
        ("/v1/metrics", b"not gzip", {"content-encoding": "gzip"}, 400, "damaged"),
        ("/v1/metrics", b"x", {"content-encoding": "br"}, 415, "use gzip"),
        ("/v1/metrics", b"{", {"content-type": "application/json"}, 400, "not OTLP/JSON"),
        ("/v1/metrics", b"x", {"content-type": "text/plain"}, 415, "application/x-protobuf"),
        ("/v1/metric", b"x", {}, 405, "takes GET"),
    ],
)
def test_a_request_that_can_never_be_taken_is_refused_for_good(
    bench: Bench, path: str, body: bytes, headers: dict[str, str], status: int, text: str
) -> None:
    sender = bench.sender(bench.service())

    answer = sender.request("POST", path, body, {"content-type": "application/x-protobuf", **headers})

    assert answer.status == status
    assert text in answer.body.decode("utf-8", "replace")


def test_a_compressed_bomb_is_refused_with_the_limit_and_the_service_goes_on(bench: Bench) -> None:
    service = bench.service()
    bomb = gzip.compress(bytes(70 * 2**20), compresslevel=1)

    answer = bench.sender(service).send("metrics", bomb, {"content-encoding": "gzip"})

    assert (answer.status, b"64 MiB" in answer.body) == (413, True)
    assert bench.sender(service).request("GET", "/healthz").json["service"] == "otel_ml"


def test_a_request_that_is_too_large_is_refused_before_it_is_read(bench: Bench) -> None:
    service = bench.service()
    sender = bench.sender(service)
    sender.connection.putrequest("POST", "/v1/metrics")
    sender.connection.putheader("content-length", str(65 * 2**20))
    sender.connection.endheaders()

    answer = sender.connection.getresponse()

    assert answer.status == 413
    assert b"64 MiB" in answer.read()


def test_points_without_an_experiment_are_a_partial_success_that_names_the_key(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    message = foreign([{"name": "a", "value": 1.0}], resource={"service.name": "x"})
    body = json_format.MessageToJson(message, use_integers_for_enums=True).encode()

    answer = sender.request("POST", "/v1/metrics", body, {"content-type": "application/json"})

    assert answer.status == 200
    assert answer.json["partialSuccess"]["rejectedDataPoints"] == "1"
    assert "ml.experiment.id" in answer.json["partialSuccess"]["errorMessage"]
    assert b'otel_ml_rejected_total{reason="' in sender.request("GET", "/metrics").body


@pytest.mark.parametrize("path", ["/v1/metrics", "/healthz", "/metrics", "/otel_ml/runs"])
def test_without_the_token_nothing_is_answered(bench: Bench, path: str) -> None:
    service = bench.service(token="a secret")
    method = "POST" if path.startswith("/v1") else "GET"

    statuses = [
        bench.sender(service, token).request(method, path, b"", {"content-type": "application/x-protobuf"}).status
        for token in ("", "wrong", "a secret")
    ]

    assert statuses == [401, 401, 200]


def test_a_port_in_use_is_said_with_what_to_do(bench: Bench) -> None:
    port = int(bench.service().endpoint.rpartition(":")[2])

    with pytest.raises(ConfigError, match=rf"Cannot listen on 127.0.0.1:{port}: .*OTEL_ML_LISTEN_HTTP"):
        bench.service(http=("127.0.0.1", port), dir=bench.folder / "other")


def test_a_folder_in_use_by_another_service_is_said(bench: Bench) -> None:
    bench.service()

    with pytest.raises(Exception, match="in use by another otel_ml service"):
        bench.service()


def test_unknown_exporters_and_options_are_all_said_before_anything_starts(tmp_path: Path) -> None:
    config = ServiceConfig(exporters={"wandbb": {}, "jsonnl": {}}, dir=tmp_path)

    with pytest.raises(ConfigError) as caught:
        Service(config)

    assert len(caught.value.problems) == 2
    assert "Did you mean 'wandb'?" in str(caught.value)
    assert "Did you mean 'jsonl'?" in str(caught.value)


def test_missing_packages_are_all_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("mlflow", "wandb", "tensorboard"):
        monkeypatch.setitem(sys.modules, package, None)
    config = ServiceConfig(exporters={"mlflow/remote": {}, "wandb": {}, "tensorboard": {}, "jsonnl": {}}, dir=tmp_path)

    with pytest.raises(ConfigError) as caught:
        Service(config)

    assert len(caught.value.problems) == 4
    assert all(f"pip install 'otel-ml[{extra}]'" in str(caught.value) for extra in ("mlflow", "wandb", "tensorboard"))
    assert list(tmp_path.iterdir()) == []


def test_embedded_the_run_goes_on_with_the_exporters_there_are_and_says_the_others_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    rendezvous = bench.folder.parent / "rendezvous"
    run = EmbeddedRun(experiment="run-1", experiment_name="digits", run_name="run-1", rendezvous=rendezvous)
    for _ in range(2):
        service = bench.service(exporters={"mlflow": {}, "jsonll": {}, "jsonl": {}}, embedded=run)
        sender = bench.sender(service)
        sender.send("metrics", FakeWriter().step(1, {"loss": 1.0}))
        account = eventually(lambda sender=sender: (sender.run() or {}).get("notices") and sender.run())
        service.stop(5)

    assert list(account["exporters"]) == ["jsonl"]
    assert sum("pip install 'otel-ml[mlflow]'" in notice for notice in account["notices"]) == 1
    assert sum("Did you mean 'jsonl'?" in notice for notice in account["notices"]) == 1
    assert (bench.folder / "digits" / "run-1" / "metrics.jsonl").exists()


def test_requests_of_a_run_whose_files_cannot_be_used_are_set_aside_and_other_runs_go_on(
    bench: Bench, recording: RecordingExporter
) -> None:
    (bench.folder / "default" / "broken" / "state" / "run.db").mkdir(parents=True)
    sender = bench.sender(bench.service({"recording": lambda: recording}))

    assert sender.send("metrics", FakeWriter(experiment="broken").step(1, {"loss": 1.0})).status == 200
    sender.send("metrics", FakeWriter().step(1, {"loss": 2.0}))

    eventually(lambda: rows(recording) == {1: {"loss": 2.0}})
    assert len(list((bench.folder / ".service" / "unreadable").iterdir())) == 1


def test_notices_are_counted_in_every_answer_and_told_by_the_run(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()
    sentence = "No step is set; call otel_ml.set_step(i) or pass step=."
    before = sender.send("metrics", writer.step(0, {"loss": 1.0})).headers["otel-ml-notices"]
    sender.send("logs", writer.event("ml.notice", sentence))

    eventually(lambda: sentence in sender.run()["notices"])

    assert before == "0"
    assert sender.send("metrics", writer.step(1, {"loss": 1.0})).headers["otel-ml-notices"] == "1"


def test_health_and_metrics_are_there_for_machines(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    sender.send("metrics", FakeWriter().step(1, {"loss": 1.0}))

    health = sender.request("GET", "/healthz").json
    metrics = sender.request("GET", "/metrics").body.decode()

    assert health["service"] == "otel_ml"
    assert 'otel_ml_requests_total{signal="metrics"} 1' in metrics
    assert [run["id"] for run in sender.request("GET", "/otel_ml/runs").json] == ["run-1"]
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
    sender.send("metrics", writer.step(2, {"loss": 1.0}))
    sender.send("logs", writer.goodbye(dropped={"spool_full": 7}))
    eventually(lambda: picky.is_closed)

    text = sender.request("GET", "/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    types = [line.split() for line in text.splitlines() if line.startswith("# TYPE")]
    found = {name.removeprefix("otel_ml_").removesuffix("_total") for _, _, name, _ in types}
    assert found == set(CATALOGUE)
    assert float(values['otel_ml_duplicate_total{run="run-1"}']) == 2
    assert float(values['otel_ml_dropped_total{reason="spool_full",run="run-1"}']) == 7
    assert float(values['otel_ml_lost_total{exporter="picky",run="run-1"}']) == 1
    assert float(values['otel_ml_lag{exporter="picky",run="run-1"}']) == 0
    assert float(values['otel_ml_delivered{exporter="picky",run="run-1"}']) == picky.records[-1].seq
    assert float(values["otel_ml_journal_bytes"]) == 0
    told = [record.values for record in picky.records if isinstance(record, StepRecord)]
    assert {row["otel_ml/rejected"] for row in told if "otel_ml/rejected" in row} == {1.0}


def test_embedded_the_run_is_called_what_the_job_calls_it_before_anybody_said_so(bench: Bench) -> None:
    exporter = RecordingExporter()
    rendezvous = bench.folder.parent / "rendezvous"
    run = EmbeddedRun(experiment="run-1", experiment_name="digits", run_name="big", rendezvous=rendezvous)
    service = bench.service({"recording": lambda: exporter}, embedded=run)
    bench.sender(service).send("metrics", FakeWriter().step(1, {"loss": 1.0}))
    eventually(lambda: exporter.records)

    assert exporter.run is not None
    assert (exporter.run.experiment, exporter.run.name) == ("digits", "big")


def test_a_failed_job_is_a_failed_run(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye("failed"))

    eventually(lambda: recording.is_closed)

    assert [record.status for record in recording.records if isinstance(record, RunStatus)] == ["failed"]


def test_what_an_exporter_had_not_taken_before_the_stop_it_gets_at_the_next_start(bench: Bench) -> None:
    away = RecordingExporter()

    class Away(RecordingExporter):
        def start(self, run: RunInfo) -> None:
            raise RetryableExportError("no route to host")

    service = bench.service({"recording": Away})
    sender, writer = bench.sender(service), FakeWriter()
    train(sender, [writer], range(5))
    sender.send("logs", writer.goodbye())
    eventually(lambda: sender.run()["status"] == "finished")
    service.stop(0.1)

    bench.service({"recording": lambda: away})
    eventually(lambda: away.is_closed)

    assert rows(away) == {step: {"loss": float(step)} for step in range(5)}


def test_at_the_disk_limit_the_slowest_exporter_loses_its_place_and_replay_fills_it(
    bench: Bench, recording: RecordingExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_ml_exporters.experiments.loop._DISK_S", 0.05)
    released = threading.Event()

    class Stuck(RecordingExporter):
        max_batch = 1

        def export(self, records: Sequence[Record]) -> None:
            released.wait(60)
            super().export(records)

    stuck = Stuck()
    makers = {"recording": lambda: recording, "stuck": lambda: stuck}
    service = bench.service(makers, exporters={"jsonl": {}}, dir_max=100_000)
    sender, writer = bench.sender(service), FakeWriter()
    limit = "The limit of 100000 bytes (OTEL_ML_DIR_MAX) is reached"
    steps = 0
    while not any(limit in notice for notice in (sender.run() or {"notices": ()})["notices"]):
        assert steps < 5000
        train(sender, [writer], range(steps, steps + 100))
        steps += 100
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
    assert not any(account["exporters"][name]["lost"] for name in ("recording", "jsonl"))
    # What is not in run.db any more is still in metrics.jsonl.
    folder = RunFolder(bench.folder / "default" / "run-1")
    filled = RecordingExporter()
    recorded = list(stored_records(folder))
    replay(recorded, run.info, {"stuck": lambda: filled}, timeout=20, progress=lambda delivered: None)
    assert [record.seq for record in filled.records] == [record.seq for record in recording.records]
    assert rows(filled) == rows(recording)
