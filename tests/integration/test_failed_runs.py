"""A job of which a rank fails: what people and backends are told of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.jobs import answer_of, the_run_in
from tests.integration.worker_process import ROOT, environment, run

JOB = """
    import multiprocessing, sys, time
    import otel_ml

    def broken(step):
        return {}[step]

    def work(rank, gate):
        otel_ml.init("exp", rank=rank, world_size=3, id="job", exporters="jsonl,tensorboard")
        for step in otel_ml.steps(range(100)):
            otel_ml.log({"loss": float(step)})
            gate.wait()
            if step == 5 and rank == 1:
                broken(step)
            if step == 5:
                while not gate.broken:
                    time.sleep(0.01)  # until it is missed in the next collective
                time.sleep(0.2 * (1 + rank))
                raise TimeoutError(f"rank {rank} waited for the others")

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        gate = context.Barrier(3)
        ranks = [context.Process(target=work, args=(rank, gate)) for rank in range(3)]
        for rank in ranks:
            rank.start()
        ranks[1].join()
        gate.abort()
        for rank in ranks:
            rank.join()
"""


def otel_ml(folder: Path, *arguments: str) -> str:
    environ = environment(folder)
    command = [sys.executable, "-m", "otel_ml_service", *arguments]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout


def test_a_run_that_failed_says_which_rank_failed_first_at_which_step_and_with_what(tmp_path: Path) -> None:
    _, errors = run(JOB, environment(tmp_path, {"OTEL_ML_CAPTURE": "auto"}), tmp_path)

    said = [line for line in errors.splitlines() if line.startswith("otel_ml: ")]
    assert sum("Rank 1 failed at step 5: KeyError: 5 (program_0.py:6 in broken)." in line for line in said) == 1
    assert said[-1].startswith("otel_ml: run exp/job failed. 3 processes")
    shown = " ".join(otel_ml(tmp_path, "why", "latest").split())
    assert shown.startswith("Rank 1 failed at step 5: KeyError: 5 (program_0.py:6 in broken) ")
    assert "later: Rank 0 failed at step 5: TimeoutError: rank 0 waited for the others" in shown
    assert "return {}[step]" in shown
    failures = json.loads(otel_ml(tmp_path, "why", "latest", "--json"))["failures"]
    assert [failure["rank"] for failure in failures] == [1, 0, 2]
    assert "Rank 1 failed at step 5: KeyError: 5" in otel_ml(tmp_path, "show", "latest")
    otel_ml(tmp_path, "report", "latest")
    folder = the_run_in(tmp_path / "runs")
    assert "Rank 1 failed at step 5: KeyError: 5" in (folder / "report.html").read_text()
    steps = {name: step for name, step, _ in answer_of("tensorboard", folder)["texts"]}
    assert steps == {"otel_ml/failure": 5, "otel_ml/failure/rank_1": 5, "otel_ml/failure/rank_2": 5}


def test_the_page_shows_what_a_run_failed_with(tmp_path: Path) -> None:
    page = (ROOT / "docs/diagnostics/why.md").read_text().partition("## What it failed with")[2]
    program, shown = (block.partition("```")[0] for block in re.split(r"```(?:python|text)\n", page)[1:3])
    (tmp_path / "train.py").write_text(program)
    environ = environment(tmp_path, {"OTEL_ML_CAPTURE": "auto"})

    done = subprocess.run([sys.executable, "train.py"], env=environ, cwd=tmp_path, check=False, timeout=100)

    said = iter(otel_ml(tmp_path, "why", "latest").splitlines())
    assert done.returncode == 1
    for line in shown.splitlines()[:-1]:
        assert line in said, line  # in this order, whatever is between
