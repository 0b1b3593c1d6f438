"""Whoever reads what a command prints may have enough, as `head`, or there is nobody: that is no error."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from otel_ml_exporters.records import RunStatus, StepRecord
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, environment

pytestmark = pytest.mark.long


@pytest.fixture
def base(tmp_path: Path) -> Path:
    rows = [StepRecord(seq, "trainer", "step", seq, 0, 1000.0, {"loss": 1 / seq}) for seq in range(1, 9)]
    write_run(tmp_path, "01abc", [*rows, RunStatus(9, 1010.0, "finished")])
    return tmp_path


COMMANDS = ["runs", "runs --json", "show", "show --csv", "show latest loss", "tail", "tail --json", "top", "exporters"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_reader_has_enough_ends_well(base: Path, command: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)

    with os.fdopen(theirs, "wb") as output:
        done = subprocess.run(
            [*PROGRAM, *command.split()], env=environment(base), stdout=output, stderr=subprocess.PIPE, check=False
        )

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("closed", [(1,), (0, 1), (0, 1, 2)])
def test_a_command_that_was_started_without_an_output_ends_well_and_writes_into_no_file(
    base: Path, closed: tuple[int, ...]
) -> None:
    before = {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}
    redirected = " ".join(f"{number}>&-" for number in closed)

    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *PROGRAM, "show"], env=environment(base), check=False
    )

    assert done.returncode == 0
    assert {path: path.read_bytes() for path in base.rglob("*") if path.is_file()} == before
