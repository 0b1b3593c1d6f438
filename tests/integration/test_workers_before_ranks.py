"""What a rank has made records before the rank has a run: it is a child of the rank, and not the rank again."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.integration.recorded_by import ids_of, rows_of
from tests.integration.test_runs_of_some_ranks import LAUNCH, LAUNCHERS, RANK, launch
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

RANKS = """
import multiprocessing, sys

def work(n):
    otel_ml.log({"score": float(n)}, step=n, reduce="sum")
    touch(f"worked_{n}")

def of_a_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        yield pool.map(work, [0, 1], chunksize=1)
        yield pool.map(work, [2, 3], chunksize=1)
        pool.close()
        pool.join()

def of_a_fork(method):
    if not os.fork():
        for n in range(4):
            if n == 2:
                wait_for("begun", range(3))
            work(n)
        sys.exit()
    wait_for("worked_1", [rank])
    yield
    os.wait()
    yield

if __name__ == "__main__":
    FIRST
    works = WORKERS("METHOD")
    next(works)
    touch("ready")
    if rank == 0:
        wait_for("ready", range(3))
    if IS_BEGINNING:
        otel_ml.init("exp", name="train")
    touch("begun")
    wait_for("begun", range(3))
    for step in otel_ml.steps(range(4)):
        otel_ml.log({"loss": 1.0}, reduce="sum")
    next(works)
    list(works)
"""

WORKERS = {
    "fork": ("of_a_pool", "fork"),
    "spawn": ("of_a_pool", "spawn"),
    "forkserver": ("of_a_pool", "forkserver"),
    "bare-fork": ("of_a_fork", ""),
}
BEGINNING = {"rank-0-alone": "rank == 0", "all-ranks": "True"}
FIRST = {"the-rank-waits": 'otel_ml.log({"loss": 0.0}, step=0, reduce="sum")', "the-rank-is-silent": "pass"}


def ranks(workers: str, begins: str, first: str) -> str:
    function, method = WORKERS[workers]
    program = RANKS.replace("WORKERS", function).replace("METHOD", method)
    return program.replace("IS_BEGINNING", BEGINNING[begins]).replace("FIRST", FIRST[first])


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("begins", BEGINNING)
@pytest.mark.parametrize("told", LAUNCHERS)
@pytest.mark.parametrize("workers", WORKERS)
def test_what_records_before_its_rank_has_a_run_is_a_child_of_the_rank(
    server: OtlpServer, tmp_path: Path, workers: str, told: str, begins: str, first: str
) -> None:
    launch(tmp_path, server, ranks(workers, begins, first), LAUNCHERS[told])

    assert len(ids_of(server, "score") | ids_of(server, "loss")) == 1
    scores = sorted((point.resource["ml.rank"], point.value) for point in server.points("score"))
    assert scores == [(rank, float(n)) for rank in range(3) for n in range(4)]
    known = {point.resource["service.instance.id"]: point.resource["ml.rank"] for point in server.points("loss")}
    assert sorted(known.values()) == [0, 1, 2]
    assert {known[point.resource["ml.parent"]] for point in server.points("score")} == {0, 1, 2}


@pytest.mark.parametrize("told", LAUNCHERS)
def test_what_workers_record_before_their_ranks_have_a_run_is_no_restart_and_counts_once(
    tmp_path: Path, told: str
) -> None:
    (tmp_path / "rank.py").write_text(RANK + ranks("fork", "rank-0-alone", "the-rank-waits"))

    _, errors = run(LAUNCH.replace("TOLD", repr(LAUNCHERS[told])), environment(tmp_path), tmp_path)

    (folder,) = (path for path in (tmp_path / "runs").glob("exp/*") if path.is_dir())
    recorded = otel_ml.read(folder)
    assert recorded["score"] == ([0, 1, 2, 3], [0.0, 3.0, 6.0, 9.0])
    assert recorded["loss"] == ([0, 1, 2, 3], [3.0] * 4)
    assert {row.get("attempt", 0) for row in rows_of(folder)} == {0}
    assert "same-rank" not in errors


STARTED = """
import subprocess, sys

if sys.argv[1:]:
    for n in range(4):
        otel_ml.log({"score": float(n)}, step=n, reduce="sum")
    sys.exit()
if rank == 0:
    wait_for("begins", [1, 2])
    otel_ml.init("exp", name="train")
else:
    touch("begins")
    subprocess.run([sys.executable, "rank.py", "again"], check=True)
for step in otel_ml.steps(range(4)):
    otel_ml.log({"loss": 1.0}, reduce="sum")
    otel_ml.flush(10)
"""


@pytest.mark.parametrize("told", LAUNCHERS)
def test_a_program_that_a_rank_starts_before_it_records_takes_nothing_from_the_rank(
    server: OtlpServer, tmp_path: Path, told: str
) -> None:
    launch(tmp_path, server, STARTED, LAUNCHERS[told])

    assert len(ids_of(server, "score") | ids_of(server, "loss")) == 1
    assert sorted((point.resource["ml.rank"], point.step) for point in server.points("loss")) == [
        (rank, step) for rank in range(3) for step in range(4)
    ]
    assert {point.resource["ml.rank"] for point in server.points("score")} == {1, 2}


DAEMON = """
import sys

if rank == 0:
    wait_for("left", [1, 2])
    otel_ml.init("exp", name="train")
otel_ml.log({"loss": 1.0}, step=0, reduce="sum")
if rank:
    between = os.fork()
    if not between:
        if os.fork():
            os._exit(0)
        otel_ml.log({"score": 1.0}, step=0, reduce="sum")
        touch("left")
        wait_for("flushed", range(3))
        sys.exit()
    os.waitpid(between, 0)
otel_ml.flush(10)
touch("flushed")
"""


@pytest.mark.parametrize("told", LAUNCHERS)
def test_a_daemon_that_a_rank_has_left_to_itself_records_into_the_run_of_the_launch(
    server: OtlpServer, tmp_path: Path, told: str
) -> None:
    launch(tmp_path, server, DAEMON, LAUNCHERS[told])

    assert ids_of(server, "score") == ids_of(server, "loss")
    assert sorted(point.resource["ml.rank"] for point in server.points("score")) == [1, 2]
    assert all("ml.parent" in point.resource for point in server.points("score"))


SHELLS = """
import os, subprocess, sys
launch = {**os.environ, "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NNODES": "1"}
ranks = [
    subprocess.Popen(
        ["bash", "-c", f"{sys.executable} rank.py; exit $?"],
        env={**launch, "RANK": str(i), "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)},
    )
    for i in range(3)
]
sys.exit(sum(process.wait() for process in ranks))
"""


def test_ranks_that_slurm_starts_in_a_shell_each_are_in_the_run_of_rank_0(server: OtlpServer, tmp_path: Path) -> None:
    rank = (
        RANK
        + """
if rank == 0:
    otel_ml.init("exp", name="train")
otel_ml.log({"loss": float(rank)}, step=0)
"""
    )
    (tmp_path / "rank.py").write_text(rank)

    run(SHELLS, environment(tmp_path, variables(server)), tmp_path)

    assert sorted(point.value for point in server.points("loss")) == [0.0, 1.0, 2.0]
    assert len(ids_of(server, "loss")) == 1


EARLY = """
import multiprocessing, time

def work(n):
    otel_ml.log({"score": float(n)}, step=n)

if __name__ == "__main__":
    began = time.monotonic()
    for _ in range(4):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.map(work, range(4), chunksize=1)
            pool.close()
            pool.join()
    print(time.monotonic() - began < 6)
    touch("ready")
    wait_for("ready", range(3))
    otel_ml.init("exp", name="train")
    otel_ml.log({"loss": float(rank)}, step=0)
"""


@pytest.mark.parametrize(
    "asked", [{}, {"OTEL_ML_EXPERIMENT_NAME": "asked"}], ids=["nothing-asks", "a-run-is-asked-for"]
)
def test_pools_that_end_before_rank_0_begins_hold_up_no_rank_and_what_they_lose_is_said(
    server: OtlpServer, tmp_path: Path, asked: dict[str, str]
) -> None:
    (tmp_path / "rank.py").write_text(RANK + EARLY)
    environ = environment(tmp_path, variables(server) if asked else {})
    program = LAUNCH.replace("TOLD", repr(LAUNCHERS["torchrun"]))

    output, errors = run(program, {**environ, **asked, "OTEL_ML_DIR": ""}, tmp_path)

    assert output.splitlines() == ["True"] * 3
    assert errors.count("explain ended-before-init") == 1, errors
    assert "Values lost: 48." in errors
