"""A Ray job on two nodes that share no folder of the job's processes: `instrument_ray(service="actor")`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from tests.e2e.jobs import environment, finished, runs_in, the_run_in
from tests.e2e.ray_hosted_job import STEPS

NOBODY_IS_LEFT = """
import ray
from tests.waiting import eventually

ray.init(log_to_driver=False)
eventually(lambda: not ray.util.list_named_actors(all_namespaces=True), timeout=60)
"""

SHORT = """
import ray, otel_ml

@ray.remote(num_cpus=0)
class Worker:
    def act(self):
        otel_ml.log({"reward": 1.0}, step=0)

otel_ml.instrument_ray(service="actor")
with otel_ml.init("short", exporters="jsonl", role="driver"):
    ray.init(num_cpus=1, include_dashboard=False)
    worker = Worker.remote()
    ray.get(worker.act.remote())
    otel_ml.log({"asked": 1.0}, step=0)
    ray.shutdown()
"""

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(300)]


@contextmanager
def cluster(env: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Start a cluster of two nodes, and return its address."""
    far = folder / "far"
    far.mkdir(mode=0o700)
    command = [sys.executable, "-m", "tests.e2e.ray_nodes", far]
    with subprocess.Popen(command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        try:
            yield it.stdout.readline().strip()
        finally:
            it.communicate(timeout=120)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    """What a driver leaves that ends before its cluster."""
    folder = tmp_path_factory.mktemp("hosted")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=folder / "runs", OTEL_ML_END_SILENCE=2000, RAY_TMPDIR=short)
        with cluster(env, folder) as address:
            finished([sys.executable, "-m", "tests.e2e.ray_hosted_job"], {**env, "RAY_ADDRESS": address}, folder)
            found = runs_in(folder / "runs")
            # As the docs promise, nothing stays behind in a cluster that goes on.
            finished([sys.executable, "-c", NOBODY_IS_LEFT], {**env, "RAY_ADDRESS": address}, folder)
            return found


@pytest.fixture(scope="module")
def rows(runs: Sequence[Path]) -> Sequence[Mapping[str, Any]]:
    return [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]


def values(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return sorted({row["step"]: row["values"][name] for row in rows if name in row.get("values", {})}.items())


def test_processes_of_all_nodes_are_one_run_although_the_service_was_killed(
    runs: Sequence[Path], rows: Sequence[Mapping[str, Any]]
) -> None:
    assert len(runs) == 1
    everything = range(STEPS)
    assert values(rows, "driver/queued") == [(step, float(step)) for step in everything]
    assert values(rows, "rollout_worker/reward") == [(step, 10.0 + 2 * step) for step in everything]
    assert values(rows, "driver/after") == [(STEPS // 2, 1.0)]
    assert values(rows, "task/eval/correct") == [(step, float(step)) for step in everything]


@pytest.mark.parametrize("child", ["child", "forked"])
def test_what_a_process_on_another_node_starts_is_in_the_same_run(
    rows: Sequence[Mapping[str, Any]], child: str
) -> None:
    [name] = {name for row in rows for name in row.get("values", {}) if name.endswith(f"/{child}")}

    assert values(rows, name) == [(0, 1.0)]


def test_a_hosted_service_answers_nobody_without_its_token(rows: Sequence[Mapping[str, Any]]) -> None:
    assert values(rows, "driver/answer") == [(STEPS // 2, 401.0)]


def test_the_run_shows_no_call_of_the_actor_that_hosts_its_service(runs: Sequence[Path]) -> None:
    spans = (runs[0] / "spans.jsonl").read_text()

    assert "RolloutWorker.act ray.remote" in spans
    assert "ServiceHost" not in spans


def test_a_cluster_that_ends_with_a_short_job_takes_nothing_along(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=tmp_path / "runs", OTEL_ML_END_SILENCE=2000, RAY_TMPDIR=short)
        finished([sys.executable, "-c", SHORT], env, tmp_path)

    shown = otel_ml.read(the_run_in(tmp_path / "runs"))
    assert (shown["worker/reward"], shown["driver/asked"]) == (([0], [1.0]), ([0], [1.0]))
