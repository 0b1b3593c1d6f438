from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.otel_ml_service.cli.program import PROGRAM, environment

pytestmark = pytest.mark.long


@contextmanager
def served(base: Path, *arguments: str, **settings: str) -> Iterator[str]:
    """Run `otel-ml serve` and yield the URL that it says."""
    command = [*PROGRAM, "serve", "--to", "jsonl", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, env=environment(base, **settings), stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "OTLP/HTTP on" in line)
        yield re.findall(r"http://\S+", said)[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
