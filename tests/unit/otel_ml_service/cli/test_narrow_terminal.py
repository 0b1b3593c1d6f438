"""Tables in a terminal of 80 columns: what a person reads is not torn."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import in_a_terminal, otel_ml

_IDS = ("01M8F23108RN4QKFZRG9ZG7R6Y", "01M8F26KKSPC1X1MXJC45YMVQ6", "01M8F26QZRQFBYB59RYARMWHJY")


def _lines(base: Path, *arguments: str) -> list[str]:
    status, text = in_a_terminal(base, *arguments, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")
    assert status == 0, text
    return [line for line in lines if line.strip()]


def test_the_list_of_runs_has_a_line_for_each_whose_id_finds_it(tmp_path: Path) -> None:
    for run_id in _IDS:
        write_run(tmp_path, run_id, digits_records(steps=2))

    _, *rows = _lines(tmp_path, "runs")

    assert len(rows) == len(_IDS)
    assert max(map(len, rows)) <= 80
    for row in rows:
        found = otel_ml(tmp_path, "show", row.split()[-1])
        assert found.returncode == 0, found.stderr
        assert row.split()[0] in found.stdout


def test_a_long_name_goes_on_in_a_further_line_and_leaves_the_other_columns_whole(tmp_path: Path) -> None:
    write_run(tmp_path, "a-name-that-says-what-the-run-is-for-and-who-asked-for-it", digits_records(steps=2))

    header, first, *_ = _lines(tmp_path, "runs")

    assert header.split() == ["name", "experiment", "status", "steps", "written", "size", "id"]
    assert first.split()[1:4] == ["digits", "finished", "2"]


def test_a_program_that_reads_the_list_of_runs_has_whole_ids(tmp_path: Path) -> None:
    write_run(tmp_path, _IDS[0], digits_records(steps=2))

    assert otel_ml(tmp_path, "runs").stdout.split()[-1] == _IDS[0]
    assert json.loads(otel_ml(tmp_path, "runs", "--json").stdout)["id"] == _IDS[0]


def test_each_metric_of_a_run_has_one_line_with_its_curve(tmp_path: Path) -> None:
    write_run(tmp_path, _IDS[0], digits_records(steps=60))

    lines = _lines(tmp_path, "show", "latest")

    names = [line.split()[0] for line in otel_ml(tmp_path, "show", "latest").stdout.splitlines() if " step " in line]
    rows = [line for line in lines if " step " in line]
    assert [line.split()[0] for line in rows] == names
    assert max(map(len, rows)) <= 80
    assert [line for line in lines if re.fullmatch(r"[▁-█ ]+", line)] == []


def test_what_the_doctor_says_goes_on_below_its_own_beginning(tmp_path: Path) -> None:
    lines = _lines(tmp_path, "doctor")

    at = next(number for number, line in enumerate(lines) if " telemetry " in line)
    assert max(map(len, lines[at:])) <= 80
    assert [line[:13] for line in lines[at + 1 :]] == [" " * 13] * (len(lines) - at - 1) != []
