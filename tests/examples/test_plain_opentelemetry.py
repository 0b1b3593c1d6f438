"""A program without otel_ml, and the service it sends to."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import otel_ml
from tests.e2e.jobs import environment, finished, processes, until
from tests.examples.running import EXAMPLES
from tests.ports import free_port


@contextmanager
def service(cwd: Path, *arguments: str) -> Iterator[str]:
    """Run `otel-ml serve` with further arguments; yield its HTTP endpoint once it answers."""
    http, grpc = free_port(), free_port()
    listen = {"OTEL_ML_LISTEN_HTTP": f"127.0.0.1:{http}", "OTEL_ML_LISTEN_GRPC": f"127.0.0.1:{grpc}"}
    env = environment(OTEL_ML_END_SILENCE=2000, **listen)
    with processes([([sys.executable, "-m", "otel_ml_service", "serve", "--to", "jsonl", *arguments], env)], cwd) as [
        process
    ]:
        until(lambda: answers(http, process), seconds=30)
        yield f"http://127.0.0.1:{http}"


def answers(port: int, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, process.communicate()
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_any_program_with_an_opentelemetry_sdk_is_a_writer_in_any_language(tmp_path: Path) -> None:
    wanted = {
        "tokens": (list(range(20)), [300.0] * 20),
        "loss": (list(range(20)), [1 / (1 + step) for step in range(20)]),
    }

    with service(tmp_path) as endpoint:
        program = [sys.executable, EXAMPLES / "plain_opentelemetry.py"]
        finished(program, environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint), tmp_path)

        # It never says goodbye: its last step closes with the run, when nobody was heard for OTEL_ML_END_SILENCE.
        until(lambda: shown(tmp_path, wanted) == wanted, seconds=30)


def shown(folder: Path, names: dict[str, object]) -> dict[str, object]:
    runs = [path.parent for path in folder.glob("otel-ml-runs/*/*/metrics.jsonl")]
    return {name: values for run in runs for name, values in otel_ml.read(run).items() if name in names}
