"""A pipeline that is cut unevenly: the stage is named while the job runs, and is why; no rank is accused.

It also runs commands of docs/diagnostics/why.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import environment, the_run_in
from tests.examples.running import EXAMPLES


@pytest.mark.feature(
    "F22", "better", "a stage with more work is why all steps are longer, and none of its ranks is accused"
)
def test_a_stage_with_more_work_is_told_while_the_job_runs_and_is_why(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "pipeline.py")]
    env = environment(OTEL_ML_EXPORTERS="jsonl")

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=True)

    said = re.search(
        r"Stage 2 of role 'trainer' has ([\d.]+) × the work of the other stages since step \d", done.stderr
    )
    assert said is not None, done.stderr
    assert 1.3 <= float(said[1]) <= 2.2  # 7 layers beside 4; on a busy machine sleeping takes longer
    why = " ".join(done.stdout.partition("report.html")[2].split())
    sentences = why.partition("Where the time goes")[0]
    assert re.search(r"Caused: stage 2 had [\d.]+ × the work of the other stages, steps", sentences), why
    assert "With the work spread over all stages these steps are" in sentences
    assert "rank 4 was slow" not in why
    assert "rank 5 was slow" not in why
    account = dict(re.findall(r"(forward-compute|backward-compute|[a-z-]+-recv|grads-all-reduce) +([\d.]+ .?s)", why))
    assert {"forward-compute", "backward-compute"} <= account.keys(), why  # of the path through who was waited for
    assert "adds up to the step of the slowest rank" in why
    run = the_run_in(tmp_path / "otel-ml-runs")
    assert otel_ml.read(run)["time/exposed/backward-compute"][0]
