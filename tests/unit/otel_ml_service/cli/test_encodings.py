"""A terminal, or a file, of another encoding shows what it can, and the rest written out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from otel_ml_exporters.records import RunStatus, StepRecord
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, environment, in_a_terminal

pytestmark = pytest.mark.long


@pytest.fixture
def base(tmp_path: Path) -> Path:
    rows = [StepRecord(seq, "trainer", "step", seq, 0, 1000.0, {"损失": 1 / seq, "loss": 0.5}) for seq in range(1, 9)]
    write_run(tmp_path, "01abc", [*rows, RunStatus(9, 1010.0, "finished")])
    return tmp_path


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", ["runs", "show", "show latest loss", "top", "tail", "why", "show --csv"])
def test_a_command_in_a_pipe_of_another_encoding_prints_all_the_same(base: Path, command: str, encoding: str) -> None:
    variables = environment(base, PYTHONIOENCODING=encoding)

    done = subprocess.run([*PROGRAM, *command.split()], env=variables, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode(encoding)


def test_names_are_written_out_where_a_file_has_no_such_characters(base: Path) -> None:
    variables = environment(base, PYTHONIOENCODING="latin-1")

    done = subprocess.run([*PROGRAM, "show", "--csv"], env=variables, capture_output=True, check=False)

    assert done.stdout.decode("latin-1").splitlines()[1].split(",")[1] in {r"\u635f\u5931", "loss"}


def test_a_terminal_of_another_encoding_shows_a_table(base: Path) -> None:
    code, shown = in_a_terminal(base, "show", PYTHONIOENCODING="latin-1")

    assert code == 0
    assert "loss" in shown
