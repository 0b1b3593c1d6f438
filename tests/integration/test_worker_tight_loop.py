"""A loop that does nothing but record, in a process of its own: it waits, and loses nothing."""

from __future__ import annotations

from pathlib import Path

from otel_ml.wire import attributes as keys
from tests.integration.worker_process import environment, run
from tests.otlp_server import OtlpServer

LOOP = """
    import otel_ml
    otel_ml.init("exp")
    for number in range(300):
        otel_ml.event("happened", {"text": "x" * 10_000})
    for step in otel_ml.steps(range(4000)):
        otel_ml.log({f"x{number}": 1.0 for number in range(60)})
    assert otel_ml.shutdown(60)
"""


def test_a_receiver_that_is_slower_than_the_loop_gets_all_of_it(server: OtlpServer, tmp_path: Path) -> None:
    server.pause = 0.1
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_SPOOL_MAX": str(8 * 2**20)}

    run(LOOP, environment(tmp_path, variables), tmp_path)

    [goodbye] = server.events("ml.writer.end")
    assert goodbye.attributes[keys.DROPPED] == {}
    sent = {(point.seq, point.name): point.count for point in server.points() if point.name.startswith("x")}
    assert sum(sent.values()) == 240_000
    assert len(server.events("happened")) == 300
