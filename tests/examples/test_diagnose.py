"""`otel-ml demo --diagnose`: a slow rank is found while it is slow, stands in the report, and is why.

What it runs is examples/diagnose.py. It also runs the first commands of docs/diagnostics/why.md.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import otel_ml
from tests.e2e.jobs import environment, the_run_in
from tests.waiting import eventually


@pytest.mark.feature("M6", "better", "`otel-ml why`: the rank at the front of each phase, and in how many of the steps")
@pytest.mark.feature("M9", "better", "no score: `otel-ml why` accuses a rank where 80 % of the effect goes with it")
@pytest.mark.feature("M7", "better", "the rank, the phase and the cost are known while the job runs")
def test_a_slow_rank_is_told_while_the_job_runs_and_stands_in_the_report(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "demo", "--diagnose"]
    env = environment(OTEL_ML_EXPORTERS="jsonl")

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=110, check=True)

    assert "rank 2 in forward, step" in done.stdout
    said = re.search(r"Rank 2 of role 'trainer' is slow in 'forward' since step (\d+)", done.stderr)
    assert said is not None
    assert 65 <= int(said[1]) <= 95  # on a busy machine others are slow, too

    run = the_run_in(tmp_path / "otel-ml-runs")
    steps, ranks = otel_ml.read(run)["otel_ml/straggler/rank"]
    assert {2.0} <= {rank for step, rank in zip(steps, ranks, strict=True) if 90 <= step < 150}
    assert otel_ml.read(run)["accuracy"][1][-1] > 0.8
    [path] = [line for line in done.stdout.splitlines() if line.endswith("report.html")]
    report = (tmp_path / path).read_text()
    assert "Slow and silent ranks" in report
    assert "<td>forward</td>" in report
    spans = [json.loads(line) for line in (run / "spans.jsonl").read_text().splitlines()]
    slow = {span["span_id"] for span in spans if (span["rank"], span["name"]) == (2, "forward") and span["step"] >= 65}
    assert any(span_id in report for span_id in slow)

    why = " ".join(done.stdout.partition(path)[2].split())
    assert "rank 2 was slow in forward, steps" in why  # on a busy machine it is not all of the effect
    assert "Where the time goes (adds up to the step of the slowest rank) phase a step usual" in why
    assert re.search(r"forward [\d.]+ ms [\d.]+ ms \+[\d.]+ ms [\d.]+ % 2, in \d+ of \d+", why)


def test_what_it_would_not_look_at_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "demo", "--diagnose", "--steps", "300"]

    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "leave out --to and --steps" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_the_example_is_told_as_a_shell_tells_it(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "demo", "--diagnose"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment()) as process:
        here = psutil.Process(process.pid)
        # At once, while it imports: it has started no ranks that would live on.
        [example] = eventually(lambda: [one for one in here.children() if "diagnose.py" in " ".join(one.cmdline())])
        example.send_signal(number)

    assert process.returncode == 128 + number
