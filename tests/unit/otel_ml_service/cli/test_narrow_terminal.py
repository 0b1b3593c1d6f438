"""Tables in a narrow terminal: what a person reads is not torn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from otel_ml_exporters.records import JsonValue, Params, RunStatus, StepRecord, Table
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli import program
from tests.unit.otel_ml_service.cli.program import Run, in_a_terminal

_IDS = ("01M8F23108RN4QKFZRG9ZG7R6Y", "01M8F26KKSPC1X1MXJC45YMVQ6", "01M8F26QZRQFBYB59RYARMWHJY")


def _lines(base: Path, *arguments: str, columns: int = 80) -> list[str]:
    status, text = in_a_terminal(base, *arguments, columns=columns, NO_COLOR="1")
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")
    assert status == 0, text
    return [line for line in lines if line.strip()]


def test_the_list_of_runs_has_a_line_for_each_whose_id_finds_it(otel_ml: Run, tmp_path: Path) -> None:
    for run_id in _IDS:
        write_run(tmp_path, run_id, digits_records(steps=2))

    _, *rows = _lines(tmp_path, "runs")

    assert len(rows) == len(_IDS)
    assert max(map(len, rows)) <= 80
    for row in rows:
        status, shown, refused = otel_ml("show", row.split()[-1])
        assert status == 0, refused
        assert row.split()[0] in shown


_LONG = "llama-3-8b-instruct-lr-3e-4-warmup-2000-packed-8192-seed-"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_run_with_a_long_name_is_one_row_that_is_found_by_what_it_shows(
    otel_ml: Run, tmp_path: Path, columns: int
) -> None:
    ids = [f"{_LONG}{seed}" for seed in (17, 18)]
    for run_id in ids:
        write_run(tmp_path, run_id, digits_records(steps=2), experiment="an-experiment-of-many-words")

    header, *rows = _lines(tmp_path, "runs", columns=columns)

    assert len(rows) == len(ids)
    assert max(map(len, [header, *rows])) <= columns
    shown = [row.split()[0] for row in rows]
    assert [name[-2:] for name in shown] == ["18", "17"]
    for name in [*shown, *(one.split("…")[-1] for one in shown), *(row.split()[-1] for row in rows)]:
        status, found, refused = otel_ml("show", name)
        assert status == 0, refused
        assert f"{_LONG}{name[-2:]}" in found


def test_a_part_that_several_names_have_lists_them(otel_ml: Run, tmp_path: Path) -> None:
    for seed in (17, 18):
        write_run(tmp_path, f"{_LONG}{seed}", digits_records(steps=2))

    status, _, refused = otel_ml("show", "warmup-2000")

    assert status != 0
    assert "'warmup-2000' is a part of the names of 2 runs" in refused
    assert f"{_LONG}17" in refused


@pytest.mark.parametrize("columns", [60, 80])
def test_characters_of_two_columns_push_no_figure_out_of_the_terminal(
    otel_ml: Run, tmp_path: Path, columns: int
) -> None:
    name = "模型训练😀" * 5
    write_run(tmp_path, name, digits_records(steps=60), experiment="实验室的实验")

    header, row = _lines(tmp_path, "runs", columns=columns)

    assert max(map(cell_len, [header, row])) <= columns
    assert row.split()[2:4] == ["finished", "60"]
    assert otel_ml("show", row.split()[0])[0] == 0


@pytest.mark.parametrize("command", ["show", "top"])
def test_values_are_seen_whole_beside_names_of_any_length(tmp_path: Path, command: str) -> None:
    values = {"a" * 300: 0.12345, "模型训练😀" * 20: 0.54321, "loss": 0.75}
    rows = [StepRecord(seq, "trainer", "step", seq, 0, 1000.0, values) for seq in range(1, 9)]
    write_run(tmp_path, "01abc", [*rows, RunStatus(9, 1010.0, "finished")])

    lines = _lines(tmp_path, command)

    shown = [line for line in lines if line.startswith(("aaa", "模型"))]
    assert max(map(cell_len, shown)) <= 80
    assert any("0.123" in line for line in shown)
    assert any("0.543" in line for line in shown)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_long_metric_is_one_row_that_is_found_by_what_it_shows(otel_ml: Run, tmp_path: Path, columns: int) -> None:
    name = "validation/perplexity-of-the-held-out-split-of-code/python/mean-over-files"
    write_run(tmp_path, _IDS[0], [StepRecord(1, "trainer", "step", 0, 0, 1.0, {name: 2.5, "loss": 1.0})])

    rows = [line for line in _lines(tmp_path, "show", "latest", columns=columns) if " step " in line]

    assert len(rows) == 2
    assert max(map(len, rows)) <= columns
    shown = next(row.split()[0] for row in rows if row.startswith("validation"))
    for text in (shown, shown.split("…")[-1]):
        assert otel_ml("show", "latest", text)[1].startswith(f"{name}   last 2.5")


def test_in_a_pipe_names_are_whole_whatever_the_columns(tmp_path: Path) -> None:
    run_id = f"{_LONG}17"
    write_run(tmp_path, run_id, digits_records(steps=2))

    _, row = program.otel_ml(tmp_path, "runs", COLUMNS="40").stdout.splitlines()

    assert row.split()[0] == row.split()[-1] == run_id


def test_a_program_that_reads_the_list_of_runs_has_whole_ids(tmp_path: Path) -> None:
    write_run(tmp_path, _IDS[0], digits_records(steps=2))

    assert program.otel_ml(tmp_path, "runs").stdout.split()[-1] == _IDS[0]
    assert json.loads(program.otel_ml(tmp_path, "runs", "--json").stdout)["id"] == _IDS[0]


def test_each_metric_of_a_run_has_one_line_with_its_curve(tmp_path: Path) -> None:
    write_run(tmp_path, _IDS[0], digits_records(steps=60))

    lines = _lines(tmp_path, "show", "latest")

    names = [
        line.split()[0] for line in program.otel_ml(tmp_path, "show", "latest").stdout.splitlines() if " step " in line
    ]
    rows = [line for line in lines if " step " in line]
    assert [line.split()[0] for line in rows] == names
    assert max(map(len, rows)) <= 80
    assert [line for line in lines if re.fullmatch(r"[▁-█ ]+", line)] == []


def test_what_the_doctor_says_goes_on_below_its_own_beginning(tmp_path: Path) -> None:
    lines = _lines(tmp_path, "doctor")

    at = next(number for number, line in enumerate(lines) if " telemetry " in line)
    assert max(map(len, lines[at:])) <= 80
    assert [line[:13] for line in lines[at + 1 :]] == [" " * 13] * (len(lines) - at - 1) != []


def test_sentences_of_show_and_diff_fit_and_are_whole(tmp_path: Path) -> None:
    columns = ("rank", "kind", "phase", "since", "until", "level", "s longer per step", "s saved per step", "s in all")
    cells: tuple[JsonValue, ...] = (12, "slow", "generate/of/the/held-out/split", 40, 69, 2, 0.0772, 0.0679, 2.0)
    table = Table(1000, 3.0, "otel_ml/findings", "step", 2, columns, (cells,))
    for seed in (17, 18):
        write_run(tmp_path, f"{_LONG}{seed}", [*digits_records(steps=6), table])

    shown, compared = _lines(tmp_path, "show", "latest"), _lines(tmp_path, "diff", f"{_LONG}17", f"{_LONG}18")

    at = shown.index("found") + 1
    sentence = " ".join(line.strip() for line in shown[at:])
    assert "generate/of/the/held-out/split" in sentence
    assert max(map(len, [*shown[at:], *compared])) <= 80


@pytest.mark.parametrize("columns", [80, 160])
def test_commands_that_differ_have_the_space_that_there_is(tmp_path: Path, columns: int) -> None:
    for number, begin in enumerate(("python", "/opt/conda/envs/train/bin/python -u")):
        params = Params(1000, 1.0, {"otel_ml": {"command": f"{begin} train.py --config base.yaml --lr 0.1"}})
        write_run(tmp_path, f"run-{number}", [*digits_records(steps=6), params])

    row = next(line for line in _lines(tmp_path, "diff", "run-0", "run-1", columns=columns) if "command" in line)
    in_a_pipe = program.otel_ml(tmp_path, "diff", "run-0", "run-1").stdout

    assert columns - 12 <= len(row.rstrip()) <= columns or row.count("--lr 0.1") == 2
    assert "/opt/conda/envs/train/bin/python -u train.py --config base.yaml --lr 0.1\n" in in_a_pipe
