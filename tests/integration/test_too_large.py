"""Requests beyond what a receiver takes: cut where they can be, else said and counted, and never in the way."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

import otel_ml
from otel_ml_exporters.records import Summary
from otel_ml_service.stored_runs.read_records import facts, records
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.integration.left_behind import events_left
from tests.integration.worker_process import environment, run
from tests.otlp_server import Event, Point, events_of, eventually, points_of


class Receiver(
    metrics_service_pb2_grpc.MetricsServiceServicer,
    logs_service_pb2_grpc.LogsServiceServicer,
    trace_service_pb2_grpc.TraceServiceServicer,
):
    """One with gRPC's usual limit, 4 MiB a message."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.events: list[Event] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 (the name of the RPC)
        del context
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            self.points.extend(points_of(request))
            return metrics_service_pb2.ExportMetricsServiceResponse()
        if isinstance(request, logs_service_pb2.ExportLogsServiceRequest):
            self.events.extend(events_of(request))
            return logs_service_pb2.ExportLogsServiceResponse()
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def served() -> Iterator[tuple[Receiver, dict[str, str]]]:
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(receiver, server)
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    yield receiver, variables
    server.stop(0).wait()


WIDE = """
    import otel_ml
    with otel_ml.init("wide", id="one"):
        for step in otel_ml.steps(range(3)):
            otel_ml.log({f"layer.{i}/a/long/name/of/a/parameter/of/a/model/norm": 1.0 + step for i in range(30_000)})
            otel_ml.log({"loss": 1.0})
"""


def test_a_step_of_30_000_series_passes_grpcs_usual_limit(
    served: tuple[Receiver, dict[str, str]], tmp_path: Path
) -> None:
    receiver, variables = served

    _, errors = run(WIDE, environment(tmp_path, variables), tmp_path)

    assert "recorded 90,009 values, acknowledged by" in errors
    got = [(point.name, point.step) for point in receiver.points if point.name.startswith("layer.")]
    assert len(got) == len(set(got)) == 90_000


def test_a_service_counts_the_parts_of_a_cut_step_as_the_step(tmp_path: Path) -> None:
    program = WIDE.replace("30_000", "12_000")

    run(program, environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"}), tmp_path)

    def layers() -> set[str]:
        found = otel_ml.read(tmp_path / "runs" / "wide" / "one")
        return {f"{name}: {series}" for name, series in found.items() if name.startswith("layer.")}

    eventually((tmp_path / "runs" / "wide" / "one" / "metrics.jsonl").exists, within=60)
    eventually(lambda: len(layers()) == 12_000, within=60)
    eventually(lambda: all(line.endswith(": ([0, 1, 2], [1.0, 2.0, 3.0])") for line in layers()), within=60)


def test_what_is_lost_at_the_very_end_is_in_the_account_too(
    served: tuple[Receiver, dict[str, str]], tmp_path: Path
) -> None:
    receiver, variables = served
    program = """
        import otel_ml
        with otel_ml.init("text"):
            otel_ml.log_text("notes", "x" * 5_000_000)
    """

    run(program, environment(tmp_path, variables), tmp_path)

    newest = [event for event in receiver.events if event.name == "ml.writer.end"][-1]
    assert {**newest.attributes, **(newest.body or {})}["otel_ml.dropped"] == {"events_and_spans: request_too_large": 1}


def test_recover_leaves_out_what_is_too_large_sends_the_rest_and_says_so_with_its_exit_code(
    served: tuple[Receiver, dict[str, str]], tmp_path: Path
) -> None:
    receiver, variables = served
    program = """
        import otel_ml, os, signal
        from pathlib import Path
        from otel_ml.wire.spool_format import read_spool

        def spooled(name):
            paths = Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*/spool/*.spool")
            return any(name in frame.payload for path in paths for frame in read_spool(path).frames)

        otel_ml.init("left", id="one")
        otel_ml.log_text("notes", "x" * 5_000_000)
        otel_ml.log({f"layer.{i}/a/long/name/of/a/parameter/of/a/model/norm": 1.0 for i in range(40_000)}, step=0)
        otel_ml.set_step(1)
        otel_ml.event("last")
        while not (spooled(b"last") and spooled(b"layer.39999/")):
            otel_ml.flush(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    nobody = {**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    run(program, environment(tmp_path, nobody), tmp_path, code=-9)

    command = [sys.executable, "-m", "otel_ml_service", "recover", "--timeout", "60"]
    environ = environment(tmp_path, variables)
    named = [*command, "one"]  # it was on its way to another endpoint
    first = subprocess.run(named, env=environ, capture_output=True, text=True, check=False, timeout=100)
    again = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=100)

    assert first.returncode == 3, first.stdout + first.stderr
    assert "Lost, since it cannot be cut any smaller: the event ml.text 'notes'." in first.stdout
    assert len({point.name for point in receiver.points if point.name.startswith("layer.")}) == 40_000
    assert "last" in [event.name for event in receiver.events]
    assert (again.returncode, "Nothing to recover" in again.stdout) == (0, True)


def test_a_text_beyond_the_limit_is_said_and_counted_and_the_rest_arrives(
    served: tuple[Receiver, dict[str, str]], tmp_path: Path
) -> None:
    receiver, variables = served
    program = """
        import otel_ml
        with otel_ml.init("text"):
            for step in otel_ml.steps(range(3)):
                otel_ml.log({"loss": 1.0})
                otel_ml.log_text("notes", "x" * 5_000_000 if step == 1 else "short")
            otel_ml.flush(20.0)
    """

    _, errors = run(program, environment(tmp_path, variables), tmp_path)

    assert "The receiver takes no request of 5 MB" in errors
    assert "Lost, since it cannot be cut any smaller: the event ml.text 'notes'." in errors
    assert "refused 1 events or spans (request_too_large): lost" in errors
    assert [point.step for point in receiver.points if point.name == "loss"] == [0, 1, 2]
    assert [event.name for event in receiver.events].count("ml.text") == 2
    goodbye = next(event for event in receiver.events if event.name == "ml.writer.end")
    assert {**goodbye.attributes, **(goodbye.body or {})}["otel_ml.dropped"] == {
        "events_and_spans: request_too_large": 1
    }


def test_texts_at_the_end_that_no_request_can_hold_are_each_lost_with_the_reason_in_the_run_and_the_last_line(
    tmp_path: Path,
) -> None:
    program = """
        import otel_ml
        with otel_ml.init("digits", id="one"):
            otel_ml.log({"loss": 1.0}, step=0)
            for number in range(3):
                otel_ml.log_text(f"text{number}", "x" * 70_000_000, step=0)
    """
    variables = {"OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_EXIT_WAIT": "60"}

    _, errors = run(program, environment(tmp_path, variables), tmp_path)

    found = RunFolder(tmp_path / "runs/digits/one")
    eventually(lambda: facts(found) is not None and not found.database.with_name("open").exists(), within=90)
    [summary] = [record for record in records(found) if isinstance(record, Summary)]
    notices = "\n".join(facts(found).notices)
    assert "events and spans lost: events_and_spans: request_too_large: 3" in errors
    assert summary.values["otel_ml/dropped/events_and_spans: request_too_large"] == 3
    for text in (errors, notices):
        assert text.count("Lost, since it cannot be cut any smaller: the event ml.text 'text") == 3
        assert "never arrived" not in text


class Overloaded(BaseHTTPRequestHandler):
    """Takes what comes, until a text is too large for it: from then on it has no time."""

    has_time = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        is_too_large = len(body) > 1_500_000
        status = 413 if is_too_large else 200 if Overloaded.has_time else 503
        Overloaded.has_time &= not is_too_large
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_what_was_refused_when_the_time_is_over_is_in_the_counts_that_are_kept_with_the_rest(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Overloaded)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "OTEL_ML_EXIT_WAIT": "3",
    }
    program = """
        import otel_ml
        with otel_ml.init("text"):
            otel_ml.log_text("notes", "x" * 2_000_000)
    """

    _, errors = run(program, environment(tmp_path, variables), tmp_path)
    server.shutdown()
    server.server_close()

    events = events_left(tmp_path)
    newest = [event for event in events if event.name == "ml.writer.end"][-1]
    assert newest.attributes["otel_ml.dropped"] == {"events_and_spans: request_too_large": 1}
    assert any("the event ml.text 'notes'" in str(event.body) for event in events if event.name == "ml.notice")
    assert "1 points, events or spans were refused (request_too_large): lost." in errors
    assert "0 points" not in errors
