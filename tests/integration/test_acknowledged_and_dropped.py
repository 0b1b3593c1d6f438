"""A hop that acknowledges and passes nothing on: what it took is lost, and the run says so (ADR 0031)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from otel_ml_exporters import StepRecord, Summary
from otel_ml_exporters.testing import RecordingExporter
from tests.integration.conftest import Bench
from tests.integration.worker_process import environment, run, start
from tests.waiting import eventually

PROGRAM = """
    import otel_ml

    with otel_ml.init("dropped", id="run-1") as run:
        for step in range(30):
            otel_ml.set_step(step)
            otel_ml.log({"loss": 1.0})
            for _ in range(3):
                otel_ml.log({"reward": 1.0})
            otel_ml.flush(timeout=10)
"""

VALUES_A_STEP = 4


class Hop:
    """A proxy before a service that answers some requests itself, as a Collector does whose next hop refuses it."""

    def __init__(self, port: int, swallowed: dict[str, range]) -> None:
        self.port = port
        self.swallowed = swallowed
        self.seen: dict[str, int] = {}

    def swallows(self, path: str) -> bool:
        number = self.seen[path] = self.seen.get(path, -1) + 1
        return number in self.swallowed.get(path, range(0))

    def pass_on(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def hop_before(port: int, swallowed: dict[str, range]) -> Iterator[str]:
    hop = Hop(port, swallowed)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept = {key: self.headers[key] for key in ("content-type", "content-encoding") if key in self.headers}
            status, answer = (200, b"") if hop.swallows(self.path) else hop.pass_on(self.path, body, kept)
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    "swallowed",
    [{"/v1/metrics": range(10, 20)}, {"/v1/metrics": range(5)}, {"/v1/metrics": range(20, 1000)}, {}],
    ids=["in the middle", "at the beginning", "at the end", "nothing"],
)
def test_recorded_is_delivered_and_lost(
    bench: Bench, recording: RecordingExporter, tmp_path: Path, swallowed: dict[str, range]
) -> None:
    service = bench.service({"recording": lambda: recording}, end_silence_s=3.0)
    sender = bench.sender(service)
    with hop_before(sender.port, swallowed) as endpoint:
        run(PROGRAM, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}), tmp_path)
    account = eventually(
        lambda: (found := sender.run()) and found["status"] == "finished" and not found["pending"] and found, timeout=60
    )

    rows = [record for record in recording.records if isinstance(record, StepRecord) and "loss" in record.values]
    never_arrived = 30 * VALUES_A_STEP - len(rows) * VALUES_A_STEP
    assert bool(never_arrived) == bool(swallowed)
    assert account["recorded"] == 30 * VALUES_A_STEP
    assert account["lost"] == ({"never_arrived": never_arrived} if swallowed else {})
    assert account["recorded"] == account["delivered"] + account["superseded"] + sum(account["lost"].values())
    assert account["on_its_way"] == account["pending"] == 0
    [said] = [record.values for record in recording.records if isinstance(record, Summary)]
    assert said.get("otel_ml/dropped/never_arrived", 0) == never_arrived
    assert any(f"{never_arrived} of 120 values of rank 0" in notice for notice in account["notices"]) == bool(swallowed)
    metrics = sender.request("GET", "/metrics").body.decode()
    measure = f'otel_ml_dropped_total{{reason="never_arrived",run="run-1"}} {never_arrived}'
    assert (measure in metrics) == bool(swallowed)


def test_a_rank_of_which_everything_was_dropped_is_missed_in_the_last_line_and_in_the_run(
    bench: Bench, recording: RecordingExporter, tmp_path: Path
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}, end_silence_s=3.0))
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    direct = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{sender.port}", "RANK": "0", "LOCAL_RANK": "0"}
    everything = {f"/v1/{signal}": range(10_000) for signal in ("metrics", "logs", "traces")}
    with hop_before(sender.port, everything) as endpoint:
        behind_it = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "RANK": "1", "LOCAL_RANK": "1"}
        other = start(PROGRAM, environment(tmp_path, {**world, **behind_it}), tmp_path)
        _, said = run(PROGRAM, environment(tmp_path, {**world, **direct}), tmp_path)
        other.communicate(timeout=100)
    account = eventually(lambda: (found := sender.run()) and found["status"] == "finished" and found, timeout=60)

    assert "1 process (1 of 2 ranks), 120 values recorded, " in said
    assert (account["ranks"], account["ranks_expected"]) == (1, 2)
    [summary] = eventually(lambda: [record.values for record in recording.records if isinstance(record, Summary)])
    assert summary["otel_ml/ranks_unheard"] == 1
    metrics = sender.request("GET", "/metrics").body.decode()
    assert 'otel_ml_ranks{run="run-1"} 1' in metrics
    assert 'otel_ml_ranks_expected{run="run-1"} 2' in metrics


def test_an_event_that_a_hop_dropped_is_counted_as_one(
    bench: Bench, recording: RecordingExporter, tmp_path: Path
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}, end_silence_s=3.0))
    program = """
        import otel_ml

        with otel_ml.init("dropped", id="run-1") as run:
            for step in range(3):
                otel_ml.log_text("sample", str(step), step=step)
                otel_ml.flush(timeout=10)
    """
    with hop_before(sender.port, {"/v1/logs": range(1, 2)}) as endpoint:
        run(program, environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}), tmp_path)
    account = eventually(lambda: (found := sender.run()) and found["status"] == "finished" and found, timeout=60)

    assert account["lost"] == {"events_never_arrived": 1}
