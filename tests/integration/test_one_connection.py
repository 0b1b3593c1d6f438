"""A process is one connection of its service: of 16,384 ranks it has 16,384 and no more."""

from __future__ import annotations

from pathlib import Path

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer


def test_metrics_spans_and_events_of_a_process_go_over_one_connection(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        otel_ml.init("exp", rank=0, world_size=16_384)
        for step in range(3):
            otel_ml.set_step(step)
            with otel_ml.timed("forward"):
                otel_ml.log({"loss": 1.0})
            otel_ml.log_text("said", f"at {step}")
            otel_ml.flush(30)
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert {path for path, _, _ in server.requests if path.startswith("/v1")} == {
        "/v1/metrics",
        "/v1/traces",
        "/v1/logs",
    }
    assert server.connections == 1
