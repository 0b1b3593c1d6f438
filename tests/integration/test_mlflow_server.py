"""MLflow over its own HTTP server, and several exporters on one database."""

from __future__ import annotations

import os
import shutil
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from otel_ml_exporters.backends.mlflow import MlflowExporter
from otel_ml_exporters.backends.otlp import TracesExporter
from otel_ml_exporters.errors import PermanentExportError, RetryableExportError
from otel_ml_exporters.records import Params, RunStatus, Span, SpanBatch, StepRecord, Summary
from otel_ml_service.cli.open_command import mlflow_page
from tests.contract.stored import environment
from tests.contract.stream import AT, run_info, scalars, step, training
from tests.forked import Forked
from tests.integration.exporter_life import ENDLESS, RUN_ID, begin
from tests.ports import free_port

WAIT = 110.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, mlflow_database: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mlflow-server")
    shutil.copy(mlflow_database, folder / "server.db")
    port = free_port()
    arguments = [str(folder), str(port)]
    env = {**environment(), **QUIET}
    server = Forked("mlflow", "tests.integration.mlflow_server", arguments, env=env, cwd=folder)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.communicate()


QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def wait_until_healthy(url: str, server: Forked) -> None:
    deadline = time.monotonic() + WAIT
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1.0):
                return
        except OSError:
            assert server.is_alive(), "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)  # between two looks


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "digits" / RUN_ID
    folder.mkdir(parents=True)
    return folder


def stored_points(uri: str) -> Counter[tuple[str, int, int, str]]:
    """Return (metric, step, milliseconds, value) of each point of the one run, as MLflow's client reads it."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    (run,) = [run for run in client.search_runs(["0", "1", "2"]) if run.data.tags.get("otel_ml.run_id") == RUN_ID]
    histories = [client.get_metric_history(run.info.run_id, key) for key in run.data.metrics]
    return Counter((p.key, p.step, p.timestamp, repr(p.value)) for history in histories for p in history)


@pytest.mark.full
def test_over_http_a_writer_killed_twice_stores_every_scalar_exactly_once(address: str, run_dir: Path) -> None:
    last = 0
    for batches in (2, 9):
        life = begin("mlflow", run_dir, ENDLESS, options={"tracking_uri": address})
        last = [int(line) for line, _ in zip(life.stdout, range(batches + 1), strict=False)][-1]
        life.kill()
        life.communicate()
    last_life = begin("mlflow", run_dir, last + 400, options={"tracking_uri": address})
    last_life.communicate(timeout=WAIT)

    found = stored_points(address)

    records = [training(seq) for seq in range(1, last + 401)]
    assert last_life.returncode == 0
    assert sorted((key, at, value) for key, at, _, value in found) == sorted(
        (name, at, repr(float(value))) for record in records for name, _, at, value in scalars(record)
    )
    assert set(found.values()) == {1}
    assert {ms - round(AT * 1000) - at * 1000 for key, at, ms, _ in found if key == "tokens"} == {0}


def test_exporters_that_open_one_run_at_once_get_the_same_run_and_the_same_new_database(run_dir: Path) -> None:
    arguments = [str(run_dir), RUN_ID]
    racers = [Forked("mlflow", "tests.integration.racer", arguments, env=environment(), cwd=run_dir) for _ in range(3)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        racer.communicate(timeout=WAIT)

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run_dir.parents[1] / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert len(client.search_runs([experiment.experiment_id])) == 1
    assert Path(experiment.artifact_location).is_relative_to(run_dir.parents[1])


def test_the_page_of_a_run_is_found_by_the_id_of_the_run(address: str, run_dir: Path) -> None:
    exporter = MlflowExporter(tracking_uri=address)
    exporter.start(run_info(run_dir, "looked for"))
    exporter.shutdown(1.0, None)

    assert mlflow_page(f"{address}/", "looked for") == exporter.url
    assert mlflow_page(f"{address}/", "nobody's") == f"{address}/"


def test_a_server_that_is_away_is_worth_another_try_at_once(run_dir: Path) -> None:
    began = time.monotonic()

    with pytest.raises(RetryableExportError, match="MLflow"):
        MlflowExporter(tracking_uri="http://127.0.0.1:9").start(run_info(run_dir, RUN_ID))

    # MLflow's own client would retry for four minutes; its import takes most of this.
    assert time.monotonic() - began < 60


@pytest.fixture
def exporter(run_dir: Path, mlflow_database: Path) -> MlflowExporter:
    shutil.copy(mlflow_database, run_dir.parents[1] / "mlflow.db")
    made = MlflowExporter()
    made.start(run_info(run_dir, RUN_ID))
    return made


def only_run(run_dir: Path) -> object:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{run_dir.parents[1] / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    return run


def test_a_second_value_of_a_parameter_is_said_and_raises_nothing(exporter: MlflowExporter, run_dir: Path) -> None:
    exporter.export([Params(1, AT, {"lr": 0.1, "note": "x" * 7000})])

    exporter.export([Params(2, AT, {"lr": 0.2, "seed": 3})])

    data = only_run(run_dir).data
    assert (data.params["lr"], data.params["seed"], len(data.params["note"])) == ("0.1", "3", 6000)
    assert data.tags["otel_ml.param_conflicts"].splitlines() == [
        "note: cut to 6000 of 7000 characters",
        "lr: kept '0.1', not '0.2'",
    ]


def test_a_final_value_does_not_add_a_point_to_the_series_of_that_name(exporter: MlflowExporter, run_dir: Path) -> None:
    exporter.export([step(1, 7, {"loss": 0.5}), Summary(2, AT, {"loss": 0.1, "test/accuracy": 0.9})])

    metrics = only_run(run_dir).data.metrics
    assert metrics == {"loss": 0.5, "summary/loss": 0.1, "test/accuracy": 0.9}


def test_the_newest_of_several_amendments_is_the_newest_point_also_after_a_restart(
    exporter: MlflowExporter, run_dir: Path
) -> None:
    exporter.export([step(1, 1, {"loss": 1.0}), step(2, 1, {"loss": 2.0}, amendment=True, time=AT + 1)])
    exporter.shutdown(1.0, None)
    again = MlflowExporter()
    again.start(run_info(run_dir, RUN_ID))
    again.export([step(3, 1, {"loss": 3.0}, amendment=True, time=AT + 1)])

    run = only_run(run_dir)
    assert run.data.metrics["loss"] == 3.0
    assert run.data.tags["otel_ml.amendments"] == "2"


def test_a_record_sent_again_after_an_answer_that_got_lost_changes_nothing(
    exporter: MlflowExporter, run_dir: Path
) -> None:
    records = [training(seq) for seq in range(1, 40)]
    exporter.export(records)
    uri = f"sqlite:///{run_dir.parents[1] / 'mlflow.db'}"
    before = stored_points(uri)

    # As if the tag with the position had not been written: a crash between a request's points and its tags.
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    run_id = only_run(run_dir).info.run_id
    for tag, value in {"otel_ml.seq": "0", "otel_ml.amendments": "0", "otel_ml.amended": "[]"}.items():
        client.set_tag(run_id, tag, value)
    again = MlflowExporter()
    again.start(run_info(run_dir, RUN_ID))
    again.export(records)

    assert stored_points(uri) == before


def test_a_row_wider_than_a_request_is_stored_whole(exporter: MlflowExporter, run_dir: Path) -> None:
    record = StepRecord(1, "trainer", "step", 1, 0, AT, {f"m{at}": float(at) for at in range(2500)})

    exporter.export([record, step(2, 2, {"m0": 1.0})])

    assert exporter.position() == 2
    assert len(only_run(run_dir).data.metrics) == 2500


def test_a_run_deleted_by_hand_is_a_permanent_error(exporter: MlflowExporter, run_dir: Path) -> None:
    from mlflow import MlflowClient

    uri = f"sqlite:///{run_dir.parents[1] / 'mlflow.db'}"
    MlflowClient(uri).delete_run(only_run(run_dir).info.run_id)

    with pytest.raises(PermanentExportError, match="MLflow"):
        exporter.export([step(1, 1, {"loss": 1.0})])


def test_the_status_of_the_run_is_kept_and_a_later_start_reopens_it(exporter: MlflowExporter, run_dir: Path) -> None:
    exporter.shutdown(1.0, RunStatus(1, AT + 60, "killed"))
    ended = only_run(run_dir).info
    again = MlflowExporter()
    again.start(run_info(run_dir, RUN_ID))

    assert (ended.status, ended.end_time) == ("KILLED", round((AT + 60) * 1000))
    assert only_run(run_dir).info.status == "RUNNING"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


def spans_of_two_steps() -> list[Span]:
    """Return what one rank sends of two steps: each a trace, what is inside of it first."""
    found = []
    for at in (0, 1):
        trace, begin = f"{at + 1:032x}", 1_700_000_000_000_000_000 + at * 10**9
        ids = [f"{at * 10 + n:016x}" for n in (1, 2)]
        about = {"trace_id": trace, "role": "trainer", "rank": 3, "axis": "step", "step": at}
        inside = Span(span_id=ids[1], parent_id=ids[0], name="forward", start_ns=begin + 7, end_ns=begin + 500, **about)
        around = Span(span_id=ids[0], parent_id=None, name="step", start_ns=begin, end_ns=begin + 1000, **about)
        found += [replace(inside, attributes={"batch": 7}), replace(around, status="error")]
    return found


def test_spans_are_traces_of_the_run_in_mlflow(address: str, run_dir: Path) -> None:
    from mlflow import MlflowClient

    exporter = MlflowExporter(tracking_uri=address)
    exporter.start(run_info(run_dir, "traced"))
    spans = spans_of_two_steps()
    sender = TracesExporter(endpoint=address, mlflow=True)
    sender.start(run_info(run_dir, "traced"))
    for batch in (spans[:1], spans[1:], spans):  # a request whose answer was lost is sent again
        sender.export([SpanBatch(1, tuple(batch))])
    exporter.shutdown(1.0, None)

    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id], "tags.`otel_ml.run_id` = 'traced'")
    traces = client.search_traces(locations=[experiment.experiment_id], run_id=run.info.run_id)
    read = [
        (one.name, one.start_time_ns, one.end_time_ns, one.attributes["ml.step"], one.attributes.get("batch"))
        for trace in traces
        for one in trace.data.spans
    ]
    assert sorted(read) == sorted(
        (one.name, one.start_ns, one.end_ns, one.step, one.attributes.get("batch")) for one in spans
    )
    assert [trace.info.state.value for trace in traces] == ["ERROR", "ERROR"]


@pytest.mark.parametrize(
    "variables",
    [
        {"MLFLOW_TRACKING_TOKEN": "token"},
        {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "pässword"},
        {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "p", "MLFLOW_TRACKING_TOKEN": "token"},
        {"MLFLOW_TRACKING_USERNAME": "ann"},
    ],
)
def test_traces_come_with_the_credentials_that_mlflow_itself_would_send(
    variables: dict[str, str], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    with asks_for_credentials() as (url, shown):
        with pytest.raises(MlflowException):
            MlflowClient(url).search_runs(["0"])
        sender = TracesExporter(endpoint=url, mlflow=True)
        sender.start(run_info(run_dir, "traced"))
        with pytest.raises(RetryableExportError):
            sender.export([SpanBatch(1, tuple(spans_of_two_steps()))])
        by_hand = TracesExporter(endpoint=url, mlflow=True, headers={"Authorization": "mine"})
        by_hand.start(run_info(run_dir, "traced"))
        with pytest.raises(RetryableExportError):
            by_hand.export([SpanBatch(1, tuple(spans_of_two_steps()))])

    mlflows, ours, given = shown
    assert ours == mlflows
    assert given == "mine"


@contextmanager
def asks_for_credentials() -> Iterator[tuple[str, list[str | None]]]:
    """Refuse whoever asks; yield where, and the credentials they showed."""
    shown: list[str | None] = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            shown.append(self.headers["authorization"])
            self.send_error(401)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", shown
        finally:
            server.shutdown()
            thread.join()


def test_traces_wait_for_the_run_they_belong_to(address: str, run_dir: Path) -> None:
    sender = TracesExporter(endpoint=address, mlflow=True)
    sender.start(run_info(run_dir, "nobody's"))

    with pytest.raises(RetryableExportError, match=r"MLflow has no run with the tag otel_ml\.run_id"):
        sender.export([SpanBatch(1, tuple(spans_of_two_steps()))])
