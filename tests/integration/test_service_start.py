"""Starting a service: what is wrong is said before anything starts, and what can run does."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.config import EmbeddedRun, ServiceConfig
from otel_ml_service.service import Service
from tests.e2e.jobs import environment
from tests.integration.conftest import Bench
from tests.integration.steps import rows
from tests.otlp import FakeWriter
from tests.otlp_server import value_of
from tests.ports import free_port
from tests.waiting import eventually


def test_a_port_in_use_is_said_with_what_to_do(bench: Bench) -> None:
    port = int(bench.service().endpoint.rpartition(":")[2])

    said = rf"Cannot listen on 127.0.0.1:{port}: Address already in use\. .*OTEL_ML_LISTEN_HTTP.*explain cannot-listen"
    with pytest.raises(ConfigError, match=said):
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
    for package in ("mlflow", "wandb", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    config = ServiceConfig(exporters={"mlflow/remote": {}, "wandb": {}, "parquet": {}, "jsonnl": {}}, dir=tmp_path)

    with pytest.raises(ConfigError) as caught:
        Service(config)

    assert len(caught.value.problems) == 4
    assert all(f"pip install 'otel-ml[{extra}]'" in str(caught.value) for extra in ("mlflow", "wandb", "parquet"))
    assert list(tmp_path.iterdir()) == []


def has_started(account: dict[str, Any]) -> dict[str, Any] | None:
    """Return a run's account once it has notices and no exporter of it is starting any more."""
    exporters = account.get("exporters", {}).values()
    return account if account.get("notices") and all(found["state"] != "starting" for found in exporters) else None


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
        account = eventually(lambda sender=sender: has_started(sender.run() or {}))
        service.stop(5)

    assert {name: found["state"] for name, found in account["exporters"].items()} == {
        "jsonl": "running",
        "mlflow": "unavailable",
    }
    assert "pip install 'otel-ml[mlflow]'" in account["exporters"]["mlflow"]["problem"]
    assert account["exporters"]["mlflow"]["pending"] == account["last_seq"]
    assert sum("pip install 'otel-ml[mlflow]'" in notice for notice in account["notices"]) == 1
    assert sum("Did you mean 'jsonl'?" in notice for notice in account["notices"]) == 1
    assert (bench.folder / "digits" / "run-1" / "metrics.jsonl").exists()


@pytest.mark.parametrize("asked", [["jsonll"], ["tensorbord", "mlfow"], ["mlflow"]], ids=str)
def test_embedded_a_run_of_which_no_exporter_can_be_used_is_in_jsonl(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    rendezvous = bench.folder.parent / "rendezvous"
    run = EmbeddedRun(experiment="run-1", experiment_name="digits", run_name="run-1", rendezvous=rendezvous)
    service = bench.service(exporters={name: {} for name in asked}, embedded=run)
    sender = bench.sender(service)
    sender.send("metrics", FakeWriter().step(1, {"loss": 1.0}))

    account = eventually(lambda: (sender.run() or {}).get("notices") and sender.run())
    assert eventually((bench.folder / "digits" / "run-1" / "metrics.jsonl").exists)
    assert account["exporters"].keys() == {"jsonl", *(name for name in asked if name == "mlflow")}
    assert len([said for said in account["notices"] if "The run goes on with: jsonl." in said]) == len(asked)


def test_a_run_that_is_to_have_no_exporter_is_kept_and_delivered_nowhere(bench: Bench) -> None:
    rendezvous = bench.folder.parent / "rendezvous"
    run = EmbeddedRun(experiment="run-1", experiment_name="digits", run_name="run-1", rendezvous=rendezvous)
    service = bench.service(exporters={"none": {}}, embedded=run)
    sender = bench.sender(service)
    sender.send("metrics", FakeWriter().step(1, {"loss": 1.0}))
    sender.send("metrics", FakeWriter().step(2, {"loss": 1.0}))

    account = eventually(lambda: (sender.run() or {}).get("recorded") and sender.run())

    assert (account["exporters"], account["delivered"], account["notices"]) == ({}, 0, [])


def test_none_beside_another_exporter_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'none' means no exporter at all"):
        Service(ServiceConfig(exporters={"none": {}, "jsonl": {}}, dir=tmp_path))


def test_requests_of_a_run_whose_files_cannot_be_used_are_set_aside_and_other_runs_go_on(
    bench: Bench, recording: RecordingExporter
) -> None:
    (bench.folder / "default" / "broken" / "state" / "run.db").mkdir(parents=True)
    sender = bench.sender(bench.service({"recording": lambda: recording}))

    assert sender.send("metrics", FakeWriter(experiment="broken").step(1, {"loss": 1.0})).status == 200
    sender.send("metrics", FakeWriter().step(1, {"loss": 2.0}))

    eventually(lambda: rows(recording) == {1: {"loss": 2.0}})
    assert len(list((bench.folder / ".service" / "unreadable").iterdir())) == 1


def test_of_a_request_of_several_runs_only_what_is_of_the_broken_ones_is_set_aside(bench: Bench) -> None:
    for name in ("broken", "other"):
        (bench.folder / "default" / name / "state" / "run.db").mkdir(parents=True)
    request = ExportMetricsServiceRequest()
    for name in ("broken", "good", "other"):
        request.MergeFrom(FakeWriter(experiment=name, role=name).step(1, {"loss": 1.0}))
    sender = bench.sender(bench.service({}))

    assert sender.send("metrics", request).status == 200

    aside = bench.folder / ".service" / "unreadable"
    files = eventually(lambda: len(found := list(aside.glob("*.otlp"))) == 2 and found)
    kept = [ExportMetricsServiceRequest.FromString(path.read_bytes()) for path in files]
    assert sorted(value_of(part.resource.attributes[0].value) for one in kept for part in one.resource_metrics) == [
        "broken", "other",
    ]  # fmt: skip
    bench.services[0].stop(5.0)
    for name in ("broken", "other"):
        (bench.folder / "default" / name / "state" / "run.db").rmdir()
    again = bench.sender(bench.service({}))
    for name in ("broken", "good", "other"):
        account = eventually(lambda name=name: again.run(name))
        eventually(lambda name=name: (again.run(name) or {}).get("writers") == 1)
        assert account["notices"] == []
    eventually(lambda: not list(aside.glob("*.otlp")))


def test_embedded_the_run_is_called_what_the_job_calls_it_before_anybody_said_so(bench: Bench) -> None:
    exporter = RecordingExporter()
    rendezvous = bench.folder.parent / "rendezvous"
    run = EmbeddedRun(experiment="run-1", experiment_name="digits", run_name="big", rendezvous=rendezvous)
    service = bench.service({"recording": lambda: exporter}, embedded=run)
    bench.sender(service).send("metrics", FakeWriter().step(1, {"loss": 1.0}))
    eventually(lambda: exporter.records)

    assert exporter.run is not None
    assert (exporter.run.experiment, exporter.run.name) == ("digits", "big")


def test_embedded_the_service_ends_with_its_run_also_where_its_clock_is_set_back(bench: Bench) -> None:
    set_by = [0.0]
    rendezvous = bench.folder.parent / "rendezvous"
    run = EmbeddedRun(experiment="run-1", experiment_name="digits", run_name="big", rendezvous=rendezvous)
    service = bench.service({"jsonl": JsonlExporter}, embedded=run, clock=lambda: time.time() + set_by[0])
    sender, writer = bench.sender(service), FakeWriter()
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye())
    # From here on it waits for the last writer, who may still read the account.
    eventually(lambda: any('"finished"' in file.read_text() for file in bench.folder.rglob("metrics.jsonl")))

    set_by[0] = -3600.0

    assert service.wait(30.0)


def test_more_ranks_can_connect_than_the_shell_allows_open_files(tmp_path: Path) -> None:
    port = free_port()
    command = f"ulimit -Sn 128; exec {sys.executable} -m otel_ml_service serve --to jsonl --http 127.0.0.1:{port}"
    settings = environment(OTEL_ML_DIR=tmp_path, OTEL_ML_LISTEN_GRPC="127.0.0.1:0")
    with ExitStack() as held:
        service = held.enter_context(subprocess.Popen(["bash", "-c", command], env=settings, stderr=subprocess.DEVNULL))
        held.callback(service.terminate)
        eventually(lambda: is_listening(port))

        ranks = [held.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port))) for _ in range(300)]
        for rank in ranks:
            rank.request("GET", "/healthz")

        assert {rank.getresponse().status for rank in ranks} == {200}


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
