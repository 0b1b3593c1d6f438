"""`otel-ml top`: a run as it goes on, in a pipe and in a terminal."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.records import Params, StepRecord, Table
from otel_ml_service.cli.run_board import RunBoard
from otel_ml_service.cli.time_account import finding_lines
from otel_ml_service.findings.finding import COLUMNS, Finding, row_of
from otel_ml_service.storage.outbox import Outbox
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, environment, in_a_terminal, otel_ml


def row(step: int, time: float, values: dict[str, float], **changed: object) -> StepRecord:
    fields: dict[str, object] = {"role": "trainer", "axis": "step", "attempt": 0, **changed}
    return StepRecord(seq=step + 2, step=step, time=time, values=values, **fields)


def test_the_time_left_is_what_the_last_steps_took() -> None:
    board = RunBoard()
    for record in (Params(1, 0.0, {"train": {"max_steps": 100}}), row(0, 0.0, {"loss": 1}), row(24, 48.0, {"loss": 2})):
        board.add(record)

    assert board.progress is not None
    assert (board.progress.fraction, board.progress.seconds_left) == (0.25, 150.0)


def test_what_the_run_recorded_of_its_progress_counts_more_than_a_parameter() -> None:
    board = RunBoard()
    for record in (Params(1, 0.0, {"steps": 100}), row(0, 0.0, {"progress/remaining_steps": 3.0})):
        board.add(record)

    assert board.progress is not None
    assert board.progress.fraction == 0.25


def test_nothing_is_made_up_where_the_length_of_the_run_is_not_known() -> None:
    board = RunBoard()
    assert board.progress is None
    board.add(row(7, 0.0, {"loss": 1.0}))

    assert board.progress is not None
    assert (board.progress.place, board.progress.fraction, board.progress.seconds_left) == ("step 7", None, None)


def test_its_own_account_is_no_metric_and_no_step_of_the_run() -> None:
    board = RunBoard()
    board.add(row(7, 0.0, {"loss": 1.0}))
    board.add(row(900, 1.0, {"otel_ml/lag/exporter/jsonl": 4.0}, axis="time", role=""))

    assert list(board.metrics(9)) == ["loss"]
    assert board.progress is not None
    assert board.progress.place == "step 7"


def test_phases_are_shares_of_the_last_step_the_longest_first() -> None:
    board = RunBoard()
    board.add(row(1, 0.0, {"time/step": 0.5, "time/data": 0.1, "time/forward": 0.25, "time/forward/max": 9.0}))

    assert list(board.phases.items()) == [("forward", 0.5), ("data", 0.2)]


def test_of_several_ranks_phases_are_what_they_add_to_the_step() -> None:
    timers = {"time/step": 1.0, "time/forward": 0.9, "time/sync": 0.8, "time/step/mean": 1.0, "time/forward/mean": 0.5}
    board = RunBoard()
    account = {"time/exposed/forward": 0.9, "time/exposed/sync": 0.1, "time/exposed/sync/rank": 1.0}
    board.add(row(1, 0.0, {**timers, **account}))

    assert list(board.phases.items()) == [("forward", 0.9), ("sync", 0.1)]
    board = RunBoard()
    board.add(row(1, 0.0, {**timers, "time/sync/mean": 0.5}))
    assert list(board.phases.items()) == [("forward", 0.5), ("sync", 0.5)], "no maxima: they do not add up"


def gpu(host: str, number: int) -> str:
    return f"hw.gpu.utilization/host.name/{host}/hw.id/GPU-{number}/hw.type/gpu"


def test_hosts_are_as_busy_as_their_gpus_the_least_busy_first(tmp_path: Path) -> None:
    busy = {gpu("n1", 0): 0.9, gpu("n1", 1): 0.7, "system.cpu.utilization/host.name/n1": 0.31}
    idle = {gpu("n2", 0): 0.125, "system.cpu.utilization/host.name/n2": 0.04}
    *records, end = digits_records(steps=50)
    sampled = [row(seq, 1.0, values, axis="time", role="") for seq, values in ((900, busy), (901, idle))]
    write_run(tmp_path, "01abc", [*records, *sampled, end])

    shown = json.loads(otel_ml(tmp_path, "top", "01abc", "--json").stdout)["hosts"]
    _, text = in_a_terminal(tmp_path, "top", "01abc", NO_COLOR="1")

    assert list(shown.items()) == [("n2", {"gpu": 0.125, "cpu": 0.04}), ("n1", {"gpu": 0.8, "cpu": 0.31})]
    assert "2 hosts, the least busy first: n2 GPU 12.5 % CPU 4 % · n1 GPU 80 % CPU 31 %" in text


def test_a_finding_comes_before_who_took_longest_in_one_step() -> None:
    timed = {"time/sync": 0.29, "time/sync/mean": 0.09, "time/sync/argmax": 1.0}
    finding = Finding("slow", 2, "forward", "critical", 40, 279, slowdown=2.0, extra_s=0.025, cost_s=6.0, saved_s=0.02)
    board = RunBoard()
    board.add(row(9, 0.0, timed))
    assert board.remark == "rank 1 longest in sync: 290 ms (at step 9)"

    board.add(Table(4, 3.0, "otel_ml/findings", "step", 2, COLUMNS, (row_of(finding),)))

    assert board.finding.startswith("critical: rank 2 slow in forward, since step 40")


def test_a_pipe_gets_a_line_with_progress_values_and_who_took_longest(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=50))

    done = otel_ml(tmp_path, "top", "01abc")

    [line] = done.stdout.splitlines()
    assert line.startswith("01abc finished  step 49  100 %  loss ")
    assert "rank 2 longest in forward" in line


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    *records, end = digits_records(steps=4)
    run = write_run(tmp_path, "01abc", records)
    command = [*PROGRAM, "top", "01abc"]
    with (
        closing(Outbox(run.database)),
        subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        first = process.stdout.readline()
        with run.jsonl.open("a") as file:
            file.write(json.dumps({"seq": end.seq, "type": "status", "time": 1.0, "status": "failed"}) + "\n")
        rest = process.stdout.read()

    assert first.startswith("01abc live  step 3  100 %")
    assert rest.startswith("01abc failed  step 3")


@pytest.mark.parametrize("command", ["top", "tail"])
def test_a_run_whose_file_is_replaced_meanwhile_is_shown_as_it_is_now(tmp_path: Path, command: str) -> None:
    *records, _ = digits_records(steps=4)
    run = write_run(tmp_path, "01abc", records)
    restored = write_run(tmp_path / "restored", "01abc", digits_records(steps=9))
    with (
        closing(Outbox(run.database)),
        subprocess.Popen(
            [*PROGRAM, command, "01abc"], env=environment(tmp_path), stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        restored.jsonl.replace(run.jsonl)
        if command == "tail":
            until_line(process.stdout, "status finished")
        else:
            until_line(process.stdout, "01abc finished  step 8")
        process.kill()


def until_line(lines: Iterable[str], begin: str) -> None:
    assert any(line.startswith(begin) for line in lines)


def test_in_a_terminal_a_finding_goes_on_in_further_lines_and_the_screen_is_not_higher_for_it(tmp_path: Path) -> None:
    finding = Finding("slow", 2, "forward", "critical", 40, 279, slowdown=2.0, extra_s=0.025, cost_s=6.0, saved_s=0.02)
    *records, end = digits_records(steps=50)
    told = Table(end.seq, 3.0, "otel_ml/findings", "step", 2, COLUMNS, (row_of(finding),))
    many = row(200, 5.0, {f"loss/{number}": 1.0 for number in range(30)})
    write_run(tmp_path, "01abc", [*records, many, told])

    _, text = in_a_terminal(tmp_path, "top", "01abc", NO_COLOR="1")

    [sentence] = finding_lines(told)
    screen = text.rpartition("\x1b[2K")[2]  # what is drawn after the one before is wiped out
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen).replace("\r", "").strip().split("\n")
    assert len(sentence) > 80
    assert sentence in " ".join(" ".join(lines).split())
    assert len(lines) <= 24


@pytest.mark.parametrize("colors", [{"NO_COLOR": "1"}, {}], ids=["no colors", "colors"])
def test_in_a_terminal_of_80_columns_every_line_fits_and_has_its_curve(tmp_path: Path, colors: dict[str, str]) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=50))

    status, text = in_a_terminal(tmp_path, "top", "01abc", **colors)

    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")
    assert status == 0
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("loss ") and "▁" in line for line in lines)
    assert bool(re.search(r"\x1b\[3\d", text)) == (not colors)
