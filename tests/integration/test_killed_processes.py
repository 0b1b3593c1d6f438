"""A process of this host that is killed is missed at once: its host knows that it is gone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml_service.report.contents import read_contents
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.integration.worker_process import environment, run, start
from tests.unit.otel_ml_service.cli.program import otel_ml as otel_ml_command
from tests.waiting import eventually, whole_lines

RANK = """
    import sys
    import otel_ml

    with otel_ml.init("exp", exporters="jsonl"):
        for step in range(5):
            otel_ml.set_step(step)
            otel_ml.log({"loss": float(step)})
        otel_ml.flush(20)
        print("trained", flush=True)
        sys.stdin.readline()
        otel_ml.set_step(5)
        otel_ml.log({"loss": 5.0})
"""

PARENT = """
    import multiprocessing, os, signal, sys
    import otel_ml

    def work(connection):
        otel_ml.log({{"child/reward": 1.0}})
        otel_ml.flush(20)
        connection.send("worked")
        connection.recv()
        {end}

    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        with otel_ml.init("exp", id="one", exporters="jsonl"):
            otel_ml.log({{"loss": 1.0}}, step=0)
            ours, theirs = context.Pipe()
            child = context.Process(target=work, args=(theirs,))
            child.start()
            assert ours.recv() == "worked"
            ours.send("end")
            child.join()
"""


def rank(folder: Path, number: int, **more: str) -> subprocess.Popen[str]:
    place = {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return start(RANK, environment(folder, {"OTEL_ML_EXPERIMENT_ID": "one", **place, **more}), folder)


def trained(folder: Path) -> list[subprocess.Popen[str]]:
    """Two ranks that have trained five steps, all of which the service has."""
    ranks = [rank(folder, number) for number in range(2)]
    for process in ranks:
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n"
    return ranks


def last_record(folder: Path) -> dict[str, Any]:
    path = folder / "runs" / "exp" / "one" / "metrics.jsonl"
    lines = whole_lines(path) if path.exists() else []
    return json.loads(lines[-1]) if lines else {}


@pytest.mark.parametrize("killed", [0, 1])
def test_who_ends_well_after_another_rank_was_killed_has_the_last_word(tmp_path: Path, killed: int) -> None:
    ranks = trained(tmp_path)
    gone, last = ranks.pop(killed), ranks[0]
    gone.kill()
    gone.communicate(timeout=20)

    _, said = last.communicate("go on\n", timeout=60)

    assert last.returncode == 0
    assert "killed. 2 processes" in said
    assert "0 lost" in said
    status = [record for record in records(RunFolder(tmp_path / "runs" / "exp" / "one")) if hasattr(record, "status")]
    assert [record.status for record in status] == ["killed"]
    assert otel_ml.read(tmp_path / "runs" / "exp" / "one")["loss"] == (list(range(6)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])


def test_a_job_of_which_every_process_is_killed_is_killed_when_they_are_gone(tmp_path: Path) -> None:
    ranks = trained(tmp_path)
    for process in ranks:
        process.kill()
        process.communicate(timeout=20)

    eventually(lambda: last_record(tmp_path).get("status") == "killed", timeout=10)


def test_the_others_rows_do_not_wait_for_who_was_killed(tmp_path: Path) -> None:
    first, second = trained(tmp_path)
    second.kill()
    second.communicate(timeout=20)
    assert first.stdin is not None
    first.stdin.write("go on\n")
    first.stdin.flush()

    first.communicate(timeout=60)

    rows = [record for record in records(RunFolder(tmp_path / "runs" / "exp" / "one")) if hasattr(record, "step")]
    assert max(row.step for row in rows if row.step is not None) == 5


def test_every_command_says_the_same_of_a_rank_that_was_killed(tmp_path: Path) -> None:
    first, second = trained(tmp_path)
    second.kill()
    second.communicate(timeout=20)
    first.communicate("go on\n", timeout=60)
    runs = tmp_path / "runs"
    folder = RunFolder(runs / "exp" / "one")

    said = {name: otel_ml_command(runs, name).stdout for name in ("runs", "show", "why")}
    page = read_contents(folder)

    assert "killed" in said["runs"]
    assert "Rank 1 was killed at step 4" in said["show"]
    assert "Rank 1 was killed at step 4" in said["why"]
    assert "no rank is missing in 0 of 1 step" in said["why"]
    assert "rank 1 has no values in step 5: it was killed at step 4" in said["why"]
    assert (page.missing, page.history.status) == (1, "killed")


# A child


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_is_killed_is_missed(tmp_path: Path, method: str) -> None:
    program = PARENT.format(method=method, end="os.kill(os.getpid(), signal.SIGKILL)")

    _, said = run(program, environment(tmp_path), tmp_path)

    assert "A child of rank 0 ended without its last message: it was killed, or left by os._exit()." in said
    assert last_record(tmp_path)["status"] == "finished"  # the rank did


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_that_returns_is_not_missed_though_multiprocessing_ends_it_by_os_exit(
    tmp_path: Path, method: str
) -> None:
    _, said = run(PARENT.format(method=method, end="return"), environment(tmp_path), tmp_path)

    assert "last message" not in said
    assert "finished. 1 process" in said


def test_a_child_that_leaves_by_os_exit_does_not_make_the_run_killed(tmp_path: Path) -> None:
    _, said = run(PARENT.format(method="fork", end="os._exit(0)"), environment(tmp_path), tmp_path)

    assert last_record(tmp_path)["status"] == "finished"
    assert "finished. 1 process" in said
