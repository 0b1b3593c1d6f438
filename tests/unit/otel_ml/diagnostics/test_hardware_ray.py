"""Ray's nodes: what their metrics endpoints say, over HTTP."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from otel_ml.diagnostics import hardware
from otel_ml.diagnostics.hardware.ray_nodes import RayNodes, node_readings
from otel_ml.testing import Capture, otel_ml_capture
from tests.waiting import eventually

__all__ = ["otel_ml_capture"]

PAGE = """\
# HELP ray_node_gpus_utilization Total GPUs usage on a ray node
# TYPE ray_node_gpus_utilization gauge
ray_node_gpus_utilization{GpuDeviceName="NVIDIA H100",GpuIndex="0",SessionName="s",Version="2",ip="127.0.0.1"} 93.0
ray_node_gpus_utilization{GpuDeviceName="NVIDIA H100",GpuIndex="1",SessionName="s",Version="2",ip="127.0.0.1"} NaN
ray_node_gram_used{GpuDeviceName="NVIDIA H100",GpuIndex="0",SessionName="s",Version="2",ip="127.0.0.1"} 1024.0
ray_node_mem_used{SessionName="s",Version="2",ip="127.0.0.1"} 5.0e+09
ray_node_mem_used{SessionName="s",Version="2",ip="127.0.0.1"} 5.0e+09
ray_node_mem_total{SessionName="s",Version="2",ip="127.0.0.1"} 2.0e+10
ray_node_cpu_utilization{SessionName="s",Version="2",ip="127.0.0.1"} 25.0
ray_node_disk_free{SessionName="s"} 1
"""


@pytest.fixture
def node() -> Iterator[int]:
    """A node's metrics agent; returns its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            """Tests say enough."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def cluster(*nodes: tuple[str, int, bool]) -> SimpleNamespace:
    listed = [{"NodeManagerAddress": a, "MetricsExportPort": port, "Alive": alive} for a, port, alive in nodes]
    return SimpleNamespace(is_initialized=lambda: True, nodes=lambda: listed)


@pytest.mark.feature("N16", "better", "Ray: every node once, names of OpenTelemetry, nodes asked side by side")
def test_the_driver_asks_every_node_of_the_cluster_once(
    node: int, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is listed twice, as after a restart; a dead one is not asked; proxies are not in between."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    ray = cluster(("127.0.0.1", node, True), ("127.0.0.1", node, True), ("10.255.255.1", 9, False))
    monkeypatch.setitem(sys.modules, "ray", ray)

    with hardware.start_monitor(3600, sources="ray"):
        eventually(lambda: len(otel_ml_capture.points) >= 5)  # they are recorded one after the other
        found = [(p.name, p.count, p.mean, p.attributes) for p in otel_ml_capture.points]

    host = {"host.name": "127.0.0.1"}
    assert sorted(found, key=str) == [
        ("hw.gpu.memory.usage", 1, 2.0**30, {**host, "hw.id": "gpu0"}),
        ("hw.gpu.utilization", 1, pytest.approx(0.93), {**host, "hw.id": "gpu0"}),
        ("system.cpu.utilization", 1, 0.25, host),
        ("system.memory.limit", 1, 2e10, host),
        ("system.memory.usage", 1, 5e9, host),
    ]


def test_a_node_that_does_not_answer_is_said_and_the_others_are_measured(
    node: int, otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", cluster(("127.0.0.1", node, True), ("localhost", 9, True)))

    assert {reading.attributes["host.name"] for reading in RayNodes().read()} == {"127.0.0.1"}
    (notice,) = otel_ml_capture.notices
    assert notice.startswith("Ray's node localhost does not answer on http://localhost:9/metrics")


def test_without_a_cluster_one_line_says_so(otel_ml_capture: Capture) -> None:
    with hardware.start_monitor(0.02, sources="ray"):
        (notice,) = eventually(lambda: otel_ml_capture.notices)

    assert notice.startswith(
        "No node of Ray is measured: this process is not connected to Ray (call ray.init() first)."
    )


def test_lines_that_are_no_samples_are_passed_over() -> None:
    assert list(node_readings("n", "ray_node_mem_used{} many\nray_node_mem_used 3\n<html>")) == []
