"""What processes left in their spools, decoded; and programs that are killed while they record."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml.wire.spool_format import Kind, read_spool, request_body
from tests.otlp_server import Event, Point, events_of, points_of

STEPPING = """
    import otel_ml, time
    otel_ml.init("exp")
    for step in range(100_000):
        otel_ml.set_step(step)
        otel_ml.log({"x": 1.0})
        print(step, time.monotonic(), flush=True)
        time.sleep(0.02)  # trains until it is ended
"""

SAFE_S = 1.0
"""Five times the promised 200 ms, on a busy machine; the programs run for long enough to tell that from no promise."""


def _bodies(folder: Path, kind: Kind) -> Iterator[bytes]:
    for path in folder.glob("run/*/*/spool/*.spool"):
        yield request_body(b"", [frame.payload for frame in read_spool(path).frames if frame.kind == kind])


def points_left(folder: Path) -> list[Point]:
    requests = map(ExportMetricsServiceRequest.FromString, _bodies(folder, "M"))
    return [point for request in requests for point in points_of(request)]


def events_left(folder: Path) -> list[Event]:
    requests = map(ExportLogsServiceRequest.FromString, _bodies(folder, "L"))
    return [event for request in requests for event in events_of(request)]


def kill_while_stepping(
    process: subprocess.Popen[str], *, seconds: float, began: Callable[[], object] = lambda: True
) -> set[int]:
    """Let `STEPPING` run for some seconds after `began`, kill -9 it; return the steps that must not be lost."""
    assert process.stdout is not None
    lines = [process.stdout.readline().split()]
    while not began():
        lines.append(process.stdout.readline().split())
    start = time.monotonic()
    while float(lines[-1][1]) < start + seconds:
        lines.append(process.stdout.readline().split())
        assert lines[-1], "The process ended early."
    killed = time.monotonic()
    process.kill()
    process.communicate()
    return {int(step) for step, moment in lines if float(moment) < killed - SAFE_S}
