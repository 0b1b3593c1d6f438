"""Standard streams that are closed, full, or something of the program's own: nothing of ours suffers, nor of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

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


UNREAD = """
import sys
import otel_ml

with otel_ml.init("exp", exporters="jsonl"):
    for step in range(30):
        otel_ml.log({"loss": 1.0}, step=step)
    otel_ml.log({"odd": "text"}, step=29)
    otel_ml.flush(timeout=60)
    print("flushed", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def unread_pipe() -> Iterator[tuple[TextIO, BinaryIO]]:
    """A pipe without room for a byte, as that of a pager that waits for a key: its two ends."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"\n" * 4096)
    os.set_blocking(writing, True)
    with os.fdopen(reading, encoding="utf-8") as unread, os.fdopen(writing, "wb") as written:
        yield unread, written


@contextmanager
def flushed_job(folder: Path, standard_error: BinaryIO) -> Iterator[subprocess.Popen[str]]:
    """A job that has sent all it recorded, and ends when it is told to."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", UNREAD]
    with subprocess.Popen(
        command, env=environment(), cwd=folder, stdin=pipe, stdout=pipe, stderr=standard_error, text=True
    ) as job:
        assert job.stdout is not None
        try:
            assert job.stdout.readline() == "flushed\n"
            yield job
        finally:
            job.kill()


def test_a_standard_error_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    with unread_pipe() as (_, writing), flushed_job(tmp_path, writing) as job:
        job.communicate("\n", timeout=60)

    assert job.returncode == 0
    run = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert run["loss"] == (list(range(30)), [1.0] * 30)


def test_what_found_no_room_there_is_said_when_somebody_reads_again(tmp_path: Path) -> None:
    with unread_pipe() as (reading, writing), flushed_job(tmp_path, writing) as job:
        writing.close()
        assert job.stdin is not None
        job.stdin.close()
        said = reading.read().strip().splitlines()

    assert {line.split()[1] for line in said} >= {"run", "Metric"}


ODD = """
import sys
import otel_ml

class Odd:
    def write(self, text):
        {write}
        sys.__stdout__.write(text)
    def flush(self):
        pass
    {more}

sys.stderr = Odd()
with otel_ml.init("exp", exporters="jsonl"):
    for step in range(30):
        otel_ml.log({{"loss": 1.0}}, step=step)
    otel_ml.flush(timeout=60)
"""


@pytest.mark.parametrize(
    ("write", "more", "is_heard"),
    [
        ("pass", "pass", True),
        ("pass", "def fileno(self): raise RuntimeError('no descriptor')", True),
        ("pass", "def fileno(self): return 'two'", True),
        ("raise AttributeError('the window is closed')", "pass", False),
    ],
)
def test_whatever_a_program_puts_in_place_of_standard_error_the_run_is_whole(
    tmp_path: Path, write: str, more: str, *, is_heard: bool
) -> None:
    program = ODD.format(write=write, more=more)
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment(), cwd=tmp_path, capture_output=True, timeout=100, check=False
    )

    assert ended.returncode == 0
    assert (b"otel_ml: run exp/" in ended.stdout) is is_heard
    run = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert run["loss"] == (list(range(30)), [1.0] * 30)
