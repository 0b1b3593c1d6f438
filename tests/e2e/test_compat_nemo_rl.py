"""Drivers written for NeMo RL, unmodified but for the import: what real backends stored of them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from tests.e2e.jobs import BACKENDS, ROOT, answer_of, environment, finished, services_of, the_run_in, until
from tests.otlp_server import otlp_server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXAMPLE = ROOT / "examples" / "migrate" / "nemo_rl_grpo.py"

DRIVER = """
import subprocess, sys
from otel_ml.compat.nemo_rl import Logger

run_id, first, last, fails = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "fails"
logger = Logger({
    "log_dir": "logs",
    "mlflow_enabled": True,
    "mlflow": {"experiment_name": "grpo-dev", "run_id": run_id or None},
})
print(logger.run.id)
worker = f"import otel_ml; otel_ml.log({{'worker/tokens': 7.0}}, step={first})"
subprocess.run([sys.executable, "-c", worker], check=True)
for step in range(first, last + 1):
    logger.log_metrics({"util": 0.5}, 1000 * step, prefix="outrunning")
    logger.log_metrics({"reward": step / 10, "reward/max": 1.0}, step, prefix="train", step_finished=True)
if fails:
    raise RuntimeError("CUDA error")
logger.finish()
"""
"""Arguments: run id or nothing, first step, last step, `fails` or `ends`."""


def without_a_folder_of_all_runs(**variables: object) -> dict[str, str]:
    env = environment(**variables)
    env.pop("OTEL_ML_DIR")  # the Logger's `log_dir` is what counts
    return env


def driven(cwd: Path, *arguments: object, code: int = 0, **variables: object) -> str:
    """Run `DRIVER` to its end; return the id of its run."""
    command = [sys.executable, "-c", DRIVER, *map(str, arguments)]
    env = without_a_folder_of_all_runs(**variables)
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit and one change that is not committed."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "grpo.py").write_text("temperature = 1.0\n")
    for arguments in (["init", "--quiet"], ["add", "grpo.py"], ["commit", "--quiet", "-m", "A driver"]):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True)
    (folder / "grpo.py").write_text("temperature = 0.7\n")
    return folder


@pytest.mark.feature("N1", "better", "one call reaches every backend and waits for none")
@pytest.mark.feature("N2", "yes", "the same names and values in W&B, TensorBoard, MLflow and a file")
@pytest.mark.feature("N5", "yes", "every step is one row, complete")
@pytest.mark.feature("N8", "yes", "figures in every backend")
@pytest.mark.feature("N18", "yes", "timeline plots in every backend")
@pytest.mark.feature("N24", "better", "commit and diff, with secrets hidden, in every backend")
@pytest.mark.feature("N27", "better", "every backend is flushed and its run finished")
@pytest.mark.feature("N32", "better", "`otel_ml.read()` gives CI steps and values by name")
def test_a_grpo_driver_is_one_run_with_the_documented_names_and_values_in_every_backend(repository: Path) -> None:
    command = [sys.executable, EXAMPLE, "tensorboard", "mlflow", "wandb"]
    said = finished(command, without_a_folder_of_all_runs(), repository)
    logs = repository / "logs" / "exp_001"
    run = the_run_in(logs)

    # Nothing is wrong; a service that starts for longer than the driver lives has what that left on its host.
    explained = [line for line in said.splitlines() if "otel-ml explain" in line]
    assert [line for line in explained if "The service on this host brings them" not in line] == []
    assert run.parent.name == "grpo-dev"
    shown = otel_ml.read(run)
    steps = list(range(1, 11))
    dumped = {step: rewards_in(logs / f"train_data_step{step}.jsonl") for step in steps}
    assert shown["train/reward"] == (steps, pytest.approx([statistics.mean(dumped[step]) for step in steps]))
    assert shown["train/reward"][1][-1] > 5 * shown["train/reward"][1][0]
    assert shown["ray/node.0.mem_gb"] == ([60 * step for step in steps], [12.0 + step for step in steps])
    assert shown["validation/accuracy"][0] == shown["timing/validation/total_validation_time"][0] == [0, 5, 10]
    assert shown["timing/setup/total"][0] == [0]
    for timer in ("generation", "advantage_calculation", "policy_training", "total_step_time"):
        assert shown[f"timing/train/{timer}"][0] == shown[f"time/{timer}"][0] == steps
        own, logged = shown[f"time/{timer}"][1], shown[f"timing/train/{timer}"][1]
        assert all(outer >= inner > 0 for outer, inner in zip(own, logged, strict=True))
    for lost in ("otel_ml/dropped", "otel_ml/late", "otel_ml/amended"):
        assert not any(shown.get(lost, ([], []))[1])

    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    for backend in BACKENDS:
        answer = answer_of(backend, run)
        stored = scalars_of(answer)
        for name in ("train/reward", "train/advantages/max", "validation/rewards/p90", "ray/node.0.mem_gb"):
            expected = dict(zip(*shown[name], strict=True))
            assert stored[name] == pytest.approx(expected, rel=1e-7), (backend, name)
        assert answer["status"] in {"finished", "success"}, backend
        assert answer["params"]["otel_ml.git.commit"] == commit.stdout.strip(), backend
        assert answer["params"]["logger.mlflow.experiment_name"] == "grpo-dev", backend
        plots = {image[0] for image in answer["images"]}
        assert plots >= {f"generation_metrics/{kind}_running_requests" for kind in ("per_worker", "average")}, backend
        histograms = {step: sum(counts) for name, step, _, counts in answer["histograms"] if "prompt_rewards" in name}
        assert histograms == dict.fromkeys(steps, 25.0), backend
        if "artifacts" in answer:
            assert {inside for name, inside, _ in answer["artifacts"] if name == "code"} >= {"git-diff.patch"}, backend

    status = json.loads((logs / "checkpoints" / "latest_checkpoint_status.json").read_text())
    assert status["last_checkpoint_step"] == 10


def scalars_of(answer: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Return name → step → value; what joined a row that was written already is among the amendments."""
    stored: dict[str, dict[int, float]] = {}
    for name, _, step, value, *_ in [*answer["scalars"], *answer.get("amendments", [])]:
        stored.setdefault(name, {})[step] = value
    return stored


def rewards_in(dump: Path) -> list[float]:
    return [reward for line in dump.read_text().splitlines() for reward in json.loads(line)["rewards"]]


@pytest.mark.full
@pytest.mark.feature("N2", "better", "the first run is in the experiment that was named; a crash is a failed run")
@pytest.mark.feature("N4", "better", "steps of one family that outrun another's drop nothing")
@pytest.mark.feature("N25", "yes", "a run id continues that run")
def test_a_run_that_crashed_is_failed_in_mlflow_and_goes_on_under_its_id(tmp_path: Path) -> None:
    run_id = driven(tmp_path, "", 1, 3, "fails", code=1)

    run = the_run_in(tmp_path / "logs")
    assert (run.parent.name, run.name) == ("grpo-dev", run_id)
    assert stored_runs(tmp_path / "logs" / "mlflow.db") == [("grpo-dev", "FAILED")]

    assert driven(tmp_path, run_id, 4, 5, "ends") == run_id

    assert the_run_in(tmp_path / "logs") == run
    # A name that is also the beginning of another one: MLflow's file store made of it an error without a reason.
    expected: Mapping[str, object] = {
        "train/reward": pytest.approx({step: step / 10 for step in range(1, 6)}),
        "train/reward/max": dict.fromkeys(range(1, 6), 1.0),
        "outrunning/util": dict.fromkeys(range(1000, 6000, 1000), 0.5),
        "worker/tokens": {1: 7.0, 4: 7.0},
    }
    stored = scalars_of(answer_of("mlflow", run))
    assert {name: stored[name] for name in expected} == expected
    shown = otel_ml.read(run)
    assert {name: dict(zip(*shown[name], strict=True)) for name in expected} == expected
    assert stored_runs(tmp_path / "logs" / "mlflow.db") == [("grpo-dev", "FINISHED")]


def stored_runs(store: Path) -> list[tuple[str, str]]:
    """Return experiment and status of every run in an MLflow store."""
    with sqlite3.connect(store) as connection:
        return connection.execute(
            "select e.name, r.status from runs r join experiments e using (experiment_id)"
        ).fetchall()


@pytest.mark.feature("N1", "better", "a backend that does not answer stops neither training nor the others")
def test_a_backend_that_does_not_answer_stops_neither_training_nor_the_others(tmp_path: Path) -> None:
    run_id = driven(tmp_path, "", 1, 3, "ends", MLFLOW_TRACKING_URI="http://127.0.0.1:9")

    try:
        stored = tmp_path / "logs" / "grpo-dev" / run_id / "metrics.jsonl"
        until(lambda: stored.exists() and otel_ml.read(stored).get("train/reward") == ([1, 2, 3], [0.1, 0.2, 0.3]))
    finally:
        for service in services_of(OTEL_ML_DIR=str(tmp_path / "logs")):  # it goes on trying
            os.kill(service, signal.SIGTERM)


ACTORS = """
import otel_ml, ray
from otel_ml.compat.nemo_rl import Logger, ThreadSafeTimer, Timer

@ray.remote(num_cpus=0)
class Collector:
    def __init__(self):
        self.timer = ThreadSafeTimer(context={"worker": "collector"})

    def collect(self):
        self.timer.record("idle/total", 2.5)
        return otel_ml.flush(30)

ray.init(num_cpus=1, include_dashboard=False)
timer = Timer(context={"worker": "driver"})
with timer.time("tokenizer"):
    pass
logger = Logger({"log_dir": "logs", "mlflow": {"experiment_name": "grpo-dev"}})
logger.log_metrics({"loss": 0.5}, 1, prefix="train", step_finished=True)
assert ray.get(Collector.remote().collect.remote())
logger.finish()
ray.shutdown()
"""


def test_an_actor_has_its_timers_recorded_and_a_driver_those_after_its_logger(tmp_path: Path) -> None:
    # Ray's sockets lie below this folder: a path has 107 characters at most.
    with (
        otlp_server() as server,
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short,
    ):
        env = without_a_folder_of_all_runs(OTEL_EXPORTER_OTLP_ENDPOINT=server.url, RAY_TMPDIR=short)
        finished([sys.executable, "-c", ACTORS], env, tmp_path)

        assert [point.value for point in server.points("time/idle/total")] == [2.5]
        assert [point.resource["ml.experiment.name"] for point in server.points("train/loss")] == ["grpo-dev"]
        assert not server.points("time/tokenizer")
