"""A program that closes whatever is open, as daemons do: it loses nothing, and its own files are left as they are."""

from __future__ import annotations

from pathlib import Path

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

CLOSES_EVERYTHING = """
    import os
    import otel_ml

    otel_ml.init("closes")
    for step in range(30):
        otel_ml.log({"loss": float(step)}, step=step)
        if step in {10, 20}:
            otel_ml.flush(10)
            os.closerange(3, 256)
            mine = open(f"mine-{step}", "wb", buffering=0)
    otel_ml.shutdown(10)
"""


def test_a_program_that_closes_whatever_is_open_loses_nothing_and_finds_its_own_files_as_it_left_them(
    server: OtlpServer, tmp_path: Path
) -> None:
    _, errors = run(CLOSES_EVERYTHING, environment(tmp_path, variables(server)), tmp_path)

    assert {point.step for point in server.points("loss")} == set(range(30))
    assert [event.attributes["ml.status"] for event in server.events("ml.writer.end")] == ["finished"]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("mine-*")} == {"mine-10": b"", "mine-20": b""}
    assert "internal-error" not in errors
