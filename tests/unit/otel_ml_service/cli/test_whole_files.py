"""What a command writes for a person is there whole, or what was there before is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from otel_ml.exceptions import OtelMLError
from otel_ml_service.cli.report_command import ReportError
from otel_ml_service.cli.report_command import command as report
from otel_ml_service.cli.trace_command import TraceError
from otel_ml_service.cli.trace_command import command as trace
from otel_ml_service.cli.whole_file import whole_file
from tests.full_disk import no_file_larger_than
from tests.recorded_run import digits_records, write_run


def run(command: click.Command, base: Path, out: Path) -> None:
    command.main(["01abc", "--dir", str(base), "--out", str(out)], standalone_mode=False)


@pytest.mark.parametrize(("command", "error", "room"), [(report, ReportError, 10_000), (trace, TraceError, 1_000)])
def test_on_a_full_disk_the_file_of_before_stays_and_no_part_of_another_is_left(
    tmp_path: Path, command: click.Command, error: type[OtelMLError], room: int
) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=20))
    out = tmp_path / "out" / "file"
    out.parent.mkdir()
    out.write_text("of yesterday")

    with no_file_larger_than(room), pytest.raises(error, match="cannot be written"):
        run(command, tmp_path, out)

    assert out.read_text() == "of yesterday"
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("command", [report, trace])
def test_a_pipe_is_written_to(tmp_path: Path, command: click.Command) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=_read_into(read, pipe), daemon=True)
    reader.start()

    run(command, tmp_path, pipe)

    reader.join(timeout=60)
    assert len(b"".join(read)) > 1_000
    assert pipe.is_fifo()


def test_two_commands_that_write_one_file_at_once_do_not_share_what_they_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "file"

    with whole_file(out) as first, first.open("w") as writing:
        monkeypatch.setattr(os, "getpid", lambda: 1)  # as another process would
        with whole_file(out) as second:
            second.write_text("of the second")
        writing.write("of the first")

    assert out.read_text() == "of the first"
    assert list(tmp_path.iterdir()) == [out]


def _read_into(read: list[bytes], pipe: Path) -> Callable[[], None]:
    return lambda: read.append(pipe.read_bytes())
