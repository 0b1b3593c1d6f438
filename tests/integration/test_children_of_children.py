"""What a child makes is a child of the same rank: a writer of its own, and not a rank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import otel_ml
from tests.integration.recorded_by import rows_of
from tests.integration.worker_process import environment, run

PROGRAM = """
import multiprocessing, os, sys
import otel_ml

def work(n):
    otel_ml.log({"score": 1.0}, step=0, reduce="sum")

def pool(method, many):
    FIRST
    with multiprocessing.get_context(method).Pool(2) as workers:
        workers.map(work, range(many), chunksize=1)
        workers.close()
        workers.join()

def forks(method, many):
    FIRST
    for n in range(2):
        pid = os.fork()
        if not pid:
            for _ in range(many // 2):
                work(n)
            sys.exit()
        os.waitpid(pid, 0)

if __name__ == "__main__":
    with otel_ml.init("exp", name="train", exporters="jsonl"):
        otel_ml.log({"loss": 1.0}, step=0, reduce="sum")
        child = multiprocessing.get_context(OUTER).Process(target=MAKES, args=(INNER, 20))
        child.start()
        child.join()
        otel_ml.log({"loss": 1.0}, step=1, reduce="sum")
"""
FIRST = {"the-child-is-silent": "pass", "the-child-records": "work(0)"}


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("makes", ["pool", "forks"])
@pytest.mark.parametrize("inner", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("outer", ["fork", "spawn", "forkserver"])
def test_each_child_of_a_child_counts_as_one_and_is_no_rank(
    tmp_path: Path, outer: str, inner: str, makes: str, first: str
) -> None:
    program = PROGRAM.replace("OUTER", repr(outer)).replace("INNER", repr(inner))
    program = program.replace("MAKES", makes).replace("FIRST", FIRST[first])

    _, errors = run(program, environment(tmp_path), tmp_path)

    (folder,) = (path for path in (tmp_path / "runs").glob("exp/*") if path.is_dir())
    recorded = otel_ml.read(folder)
    assert recorded["score"] == ([0], [20.0 + (first == "the-child-records")])
    assert recorded["loss"] == ([0, 1], [1.0, 1.0])
    assert "1 process," in errors.splitlines()[-1]
    assert "never arrived" not in errors
    assert "cannot be written" not in errors
    statuses = [row["status"] for row in rows_of(folder) if row.get("type") == "status"]
    assert (statuses[-1], "killed" in statuses) == ("finished", False)


LEAVES = """
import os, sys
import otel_ml

with otel_ml.init("exp", name="train", exporters="jsonl"):
    otel_ml.log({"loss": 1.0}, step=0)
    pid = os.fork()
    if not pid:
        otel_ml.log({"score": 1.0}, step=0)
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
"""


def test_the_exit_code_of_a_fork_is_for_its_parent_and_no_failure_of_the_rank(tmp_path: Path) -> None:
    _, errors = run(LEAVES, environment(tmp_path, {"OTEL_ML_CAPTURE": "on"}), tmp_path)

    (folder,) = (path for path in (tmp_path / "runs").glob("exp/*") if path.is_dir())
    assert "failed" not in errors
    assert not [row for row in rows_of(folder) if "failure" in json.dumps(row)]
    assert otel_ml.read(folder)["score"] == ([0], [1.0])
