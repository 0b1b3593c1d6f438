"""A program that has closed its standard streams, as some that become daemons do, writes into nothing of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import environment, the_run_in

JOB = """
import os, sys
import otel_ml

for descriptor in map(int, sys.argv[1]):
    os.close(descriptor)
with otel_ml.init("exp", exporters="jsonl"):
    for step in range(300):
        otel_ml.log({"loss": 1.0}, step=step)
        for descriptor in map(int, sys.argv[1]):
            try:
                os.write(descriptor, b"a message of the program")
            except OSError:  # nothing has that number
                pass
        if step % 100 == 99:
            otel_ml.flush()
"""


@pytest.mark.parametrize("closed", ["2", "012"])
def test_what_a_program_writes_to_a_stream_that_it_has_closed_gets_into_no_file_or_connection(
    tmp_path: Path, closed: str
) -> None:
    command = [sys.executable, "-c", JOB, closed]
    ended = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, timeout=60, check=False)

    assert ended.returncode == 0
    run = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert run["loss"] == (list(range(300)), [1.0] * 300)
