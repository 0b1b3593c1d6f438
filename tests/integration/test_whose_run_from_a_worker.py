"""Whose run a program is in that a worker process, of a pool or a fork, starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recorded_by import ids_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

PROGRAM = """
import multiprocessing, subprocess, sys
import otel_ml

def work(begin):
    exec(begin)
    otel_ml.log({"score": 1.0}, step=0)
    started = "import otel_ml; otel_ml.init('exp'); otel_ml.log({'own': 1.0}, step=0)"
    subprocess.run([sys.executable, "-c", started], check=True)

if __name__ == "__main__":
    method, is_made_before, begin = sys.argv[1:]
    context = multiprocessing.get_context(method)
    if is_made_before == "True":
        pool = context.Pool(1)
    with otel_ml.init("exp"):
        otel_ml.log({"loss": 1.0}, step=0)
        if is_made_before == "False":
            pool = context.Pool(1)
        pool.map(work, [begin])
        otel_ml.flush(10)
    pool.close()
    pool.join()
"""

METHODS = ["fork", "spawn", "forkserver"]
BEGINS = {"records": "pass", "init": "otel_ml.init()", "role": "otel_ml.init(role='evaluator')"}


def ran(server: OtlpServer, tmp_path: Path, *arguments: str, **given: str) -> tuple[set[str], set[str], set[str]]:
    """Run the program; return the runs of itself, of its worker, and of the program that the worker starts."""
    program = f"import sys; sys.argv[1:] = {arguments!r}\n{PROGRAM}"
    run(program, environment(tmp_path, variables(server, **given)), tmp_path)
    return ids_of(server, "loss"), ids_of(server, "score"), ids_of(server, "own")


@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("is_made_before", [True, False], ids=["made-before", "made-after"])
@pytest.mark.parametrize("method", METHODS)
def test_a_program_that_a_worker_starts_is_a_run_of_its_own(
    server: OtlpServer, tmp_path: Path, method: str, is_made_before: bool, begin: str
) -> None:
    its, workers, started = ran(server, tmp_path, method, str(is_made_before), BEGINS[begin])

    assert its == workers
    assert len(started) == 1
    assert not started & its


@pytest.mark.parametrize("is_made_before", [True, False], ids=["made-before", "made-after"])
@pytest.mark.parametrize("method", METHODS)
def test_a_program_that_a_worker_starts_is_in_the_run_whose_id_the_job_was_given(
    server: OtlpServer, tmp_path: Path, method: str, is_made_before: bool
) -> None:
    given = {"OTEL_ML_EXPERIMENT_ID": "job-1"}

    assert ran(server, tmp_path, method, str(is_made_before), "pass", **given) == ({"job-1"}, {"job-1"}, {"job-1"})
