"""`otel-ml trace` of a real job: while it runs, and after it was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.worker_process import environment, start
from tests.perfetto_trace import read_trace
from tests.waiting import eventually, whole_lines

pytestmark = pytest.mark.long

JOB = """
    import otel_ml, time
    otel_ml.init("exp")
    for step in otel_ml.steps(range(100_000)):
        with otel_ml.timed("forward"):
            otel_ml.log({"x": 1.0})
            time.sleep(0.01)  # trains until it is ended
"""


def spans_of(run: Path) -> list[tuple[str, str, int, int]]:
    path = run / "spans.jsonl"
    rows = map(json.loads, whole_lines(path)) if path.exists() else ()
    return sorted((row["span_id"], row["name"], row["start_ns"], row["end_ns"]) for row in rows)


def traced(run: Path, *arguments: str) -> list[tuple[str, str, int, int]]:
    file = run.parent / "t.pftrace"
    command = [sys.executable, "-m", "otel_ml_service", "trace", str(run), *arguments, "-o", str(file)]
    done = subprocess.run(command, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    trace = read_trace(file)
    return sorted((one.notes["span_id"], one.name, one.begin_ns, one.end_ns) for one in trace.slices)


def test_a_run_is_traced_while_it_goes_on_and_after_its_job_was_killed(tmp_path: Path) -> None:
    variables = {"OTEL_ML_EXPERIMENT_ID": "one", "OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000"}
    run = tmp_path / "runs" / "exp" / "one"
    process = start(JOB, environment(tmp_path, variables), tmp_path)
    try:
        eventually(lambda: len(spans_of(run)) > 100, timeout=60)
        before = spans_of(run)

        live = traced(run)

        assert process.poll() is None
        assert set(before) <= set(live)
    finally:
        process.kill()
        process.communicate()
    eventually(lambda: not list(tmp_path.glob("run/*/*/service.json")), timeout=60)  # it has finished the run
    assert traced(run) == spans_of(run)
    assert len(traced(run, "--steps", "3-4")) == sum(1 for row in spans_rows(run) if row["step"] in {3, 4})


def spans_rows(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in whole_lines(run / "spans.jsonl")]


def write_large_run(run: Path, *, ranks: int, steps: int) -> None:
    """Write what a job leaves: five spans of each rank in each step."""
    run.mkdir(parents=True)
    phases = {"data": (0, 5), "forward": (5, 35), "backward": (35, 80), "optimizer": (80, 95), "step": (0, 98)}
    with (run / "spans.jsonl").open("w") as spans, (run / "metrics.jsonl").open("w") as metrics:
        for step in range(steps):
            begin = 1_795_732_584_000_000_000 + step * 100_000_000
            for rank in range(ranks):
                first = (step * ranks + rank) * 10 + 10
                for number, (name, (start, end)) in enumerate(phases.items()):
                    parent = None if name == "step" else f"{first + 4:016x}"
                    row = {
                        "seq": 2 * step + 1, "trace_id": f"{first:032x}", "span_id": f"{first + number:016x}",
                        "parent_id": parent, "name": name, "start_ns": begin + start * 1_000_000 + rank,
                        "end_ns": begin + end * 1_000_000 + rank, "role": "trainer", "rank": rank, "axis": "step",
                        "step": step, "attributes": {"ml.timer.level": 1}, "status": "unset",
                    }  # fmt: skip
                    spans.write(json.dumps(row) + "\n")
            values = {f"m{number}": float(step) for number in range(50)}
            place = {"role": "trainer", "axis": "step", "step": step, "attempt": 0, "time": begin / 1e9}
            metrics.write(json.dumps({"seq": 2 * step + 2, **place, "values": values}) + "\n")


USED_BY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_1024_ranks_and_100_steps_take_less_than_20_seconds_and_little_memory(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "exp" / "large"
    write_large_run(run, ranks=1024, steps=100)
    command = [sys.executable, "-m", "otel_ml_service", "trace", str(run), "-o", str(tmp_path / "t.pftrace")]

    # By a process between: what a child had at most counts what its parent had when it was made.
    done = subprocess.run([sys.executable, "-c", USED_BY, *command], capture_output=True, text=True, check=True)

    cpu_s, most_kb = map(float, done.stdout.split())
    assert done.stderr.startswith("512,000 spans, 5,000 values")
    assert cpu_s < 20
    assert most_kb < 200_000  # the spans have 150 MB, the file 59
