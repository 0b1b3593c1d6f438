"""AReaL's `perf_tracer` with its own package: what it writes by itself, and what is in the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tests.e2e.jobs import environment, finished, scalars_in, the_run_in, torchrun
from tests.examples.running import EXAMPLES
from tests.frameworks.environments import environment_with_only
from tests.frameworks.test_areal import PACKAGES

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

TRACER = EXAMPLES / "migrate" / "areal_tracer.py"
STEPS, RANKS, SAMPLES = 4, 2, 3

CONTROLLER = """
import subprocess, sys
import otel_ml
run = otel_ml.init("controller", exporters="jsonl")
command = ["python", "-m", "otel_ml.integrations.areal", "worker", "--port", "1", "--role", "actor", "--worker-index"]
command[0] = sys.executable
started = [subprocess.Popen(" ".join([*command, str(rank)]), shell=True) for rank in range(2)]
codes = [process.wait() for process in started]
run.finish()
sys.exit(max(codes))
"""

WORKER = """
import os, sys
from areal.api.cli_args import PerfTracerConfig
from areal.utils import perf_tracer
from areal.utils.perf_tracer import trace_scope

rank = int(sys.argv[sys.argv.index("--worker-index") + 1])
config = PerfTracerConfig(experiment_name="e", trial_name="t", fileroot="outputs", enabled=True)
perf_tracer.configure(config, rank=rank, role="actor")
for step in range(3):
    with trace_scope("rpc.ppo_update", category="compute", args={"method": "ppo_update", "engine": "actor/0"}):
        pass
    perf_tracer.save(step=step)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with_only(PACKAGES, tmp_path_factory.mktemp("areal"))


def lines_of(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def longest_by_step(traced: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return step → the longest of one scope on the ranks, in s, by AReaL's own trace."""
    found: dict[int, list[float]] = {}
    for scope in traced:
        found.setdefault(scope["args"]["global_step"], []).append(scope["dur"] / 1e6)
    assert all(len(durations) == RANKS for durations in found.values())
    return {step: max(durations) for step, durations in found.items()}


def test_what_areal_traces_on_all_ranks_is_in_the_run_as_it_wrote_it_to_its_own_files(
    python: Path, tmp_path: Path
) -> None:
    _, *launcher = torchrun(RANKS, TRACER)
    finished([python, *launcher], environment(OTEL_ML_EXPORTERS="jsonl"), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    shown = scalars_in("jsonl", run)
    theirs = lines_of(tmp_path.rglob("traces-r*.jsonl"))
    for name in ("train.rollout", "train.ppo_update", "train.barrier"):
        expected = longest_by_step(scope for scope in theirs if scope["name"] == name)
        assert sorted(expected) == list(range(STEPS))
        assert shown[f"time/{name}"] == {step: pytest.approx(s, abs=0.05) for step, s in expected.items()}, name
    assert sorted(shown["time/ppo_actor.ppo_update"]) == list(range(STEPS))
    assert sorted(shown["time/fsdp_engine.forward"]) == list(range(STEPS))

    sessions = lines_of(tmp_path.rglob("sessions-r*.jsonl"))
    assert len(sessions) == STEPS * RANKS * SAMPLES
    for field in ("total_s", "generate_s", "reward_s"):
        mean = fmean(session[field] for session in sessions)
        assert fmean(shown[f"session/{field}"].values()) == pytest.approx(mean, abs=0.01), field
    assert sum(shown["session/accepted"].values()) == sum(session["status"] == "accepted" for session in sessions)
    assert sum(shown["session/rejected"].values()) == sum(session["status"] == "rejected" for session in sessions)
    longest = max(session["total_s"] for session in sessions)
    assert max(shown["time/session"].values()) == pytest.approx(longest, abs=0.01)
    spans = lines_of([run / "spans.jsonl"])
    assert {"train.rollout", "session", "session/generate", "session/reward"} <= {span["name"] for span in spans}


def test_a_worker_that_areal_starts_is_a_rank_of_the_role_that_areal_gives_it(python: Path, tmp_path: Path) -> None:
    (tmp_path / "controller.py").write_text(CONTROLLER)
    (tmp_path / "worker.py").write_text(WORKER)

    finished([python, "controller.py"], environment(), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    shown = scalars_in("jsonl", run)
    assert sorted(shown["actor/time/rpc.ppo_update"]) == [0, 1, 2]
    spans = lines_of([run / "spans.jsonl"])
    of_calls = [(span["role"], span["rank"], span["step"]) for span in spans if span["name"] == "rpc.ppo_update"]
    # A span is as it ended: before a worker is told its first step, it has none.
    assert sorted(of_calls, key=str) == sorted([("actor", r, step) for r in range(2) for step in (None, 1, 2)], key=str)
