"""What MLflow's lists and W&B's overview say of a run: read back with MLflow's client, and from W&B's own log."""

from __future__ import annotations

import getpass
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_ml_service.stored_runs.read_records import is_over_within
from otel_ml_service.stored_runs.run_folders import find
from tests.integration.worker_process import environment
from tests.waiting import eventually

JOB = """
import otel_ml
otel_ml.init("digits", id="one", params={"lr": 0.1})
for step in range(3):
    with otel_ml.step(step):
        otel_ml.log({"loss": 1 / (step + 1)})
"""
READ_MLFLOW = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
[run] = [run for one in client.search_experiments() for run in client.search_runs([one.experiment_id])]
print(json.dumps([run.data.tags, run.info.start_time, run.info.end_time]))
"""
READ_WANDB = """
import json, sys
from pathlib import Path
from google.protobuf.json_format import MessageToDict
from otel_ml_exporters.backends.wandb.transaction_log import records
from wandb.proto.wandb_internal_pb2 import Record
found = [Record.FromString(content) for _, content in records(Path(sys.argv[1]))]
print(json.dumps([MessageToDict(one.environment) for one in found if one.WhichOneof("record_type") == "environment"]))
"""


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.com", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def said(program: str, argument: str, environ: dict[str, str]) -> Any:
    command = [sys.executable, "-c", program, argument]
    return json.loads(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)


@pytest.mark.timeout(300)
def test_a_run_is_listed_with_its_program_user_commit_duration_command_and_host(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "train.py").write_text(JOB)
    git(repository, "init", "-q", "-b", "main")
    git(repository, "remote", "add", "origin", "https://example.com/ada/digits.git")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "First")
    environ = environment(
        tmp_path, {"OTEL_ML_EXPORTERS": "jsonl,mlflow,wandb", "OTEL_ML_CAPTURE": "auto", "WANDB_MODE": "offline"}
    )
    subprocess.run([sys.executable, "train.py", "--lr", "0.1"], cwd=repository, env=environ, check=True, timeout=200)
    folder = tmp_path / "runs" / "digits" / "one"
    eventually((folder / "metrics.jsonl").exists, timeout=60)
    assert is_over_within(find("one", tmp_path / "runs"), 120)

    tags, began, ended = said(READ_MLFLOW, f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}", environ)
    [log] = (tmp_path / "runs" / "wandb").glob("*run-*/run-*.wandb")
    [overview] = said(READ_WANDB, str(log), environ)

    commit = git(repository, "rev-parse", "HEAD")
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert {key: tags[f"mlflow.{key}"] for key in ("source.name", "source.type", "user", "source.git.commit")} == {
        "source.name": "train.py",
        "source.type": "LOCAL",
        "user": getpass.getuser(),
        "source.git.commit": commit,
    }
    assert began <= first["time"] * 1000 + 1
    assert ended >= began
    assert (overview["program"], overview["args"]) == ("train.py", ["--lr", "0.1"])
    assert (overview["host"], overview["username"]) == (socket.gethostname(), getpass.getuser())
    assert overview["git"] == {"remote": "https://example.com/ada/digits.git", "commit": commit}
