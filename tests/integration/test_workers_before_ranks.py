"""What a rank has made records before the rank has a run: it is a child of the rank, and not the rank again."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.integration.recorded_by import ids_of, rows_of
from tests.integration.test_runs_of_some_ranks import LAUNCH, LAUNCHERS, RANK, launch
from tests.integration.worker_process import environment, run
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
