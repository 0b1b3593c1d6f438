"""deploy/kubernetes/skypilot.yaml, as SkyPilot runs it on each node: with the variables that it sets."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.test_blocks import with_commands
from tests.e2e.jobs import ROOT
from tests.integration.worker_process import environment
from tests.otlp_server import otlp_server
from tests.ports import free_port

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

TASK = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "skypilot.yaml").read_text())

TRAIN = """
import otel_ml

with otel_ml.init("digits"):
    for step in otel_ml.steps(range(3)):
        otel_ml.log({"loss": 0.5})
"""


def test_the_nodes_of_a_task_are_ranks_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    path = with_commands(tmp_path)["PATH"]
    command = TASK["run"].replace("29500", str(free_port()))
    with otlp_server() as server:
        nodes = [
            subprocess.Popen(
                ["bash", "-euc", command],
                env={
                    **environment(tmp_path),
                    "PATH": path,
                    **dict.fromkeys(TASK["envs"], server.url),
                    "OTEL_ML_TOKEN": "a-token",
                    "SKYPILOT_TASK_ID": "sky-2026-11-27-digits-1",
                    "SKYPILOT_NUM_NODES": str(TASK["num_nodes"]),
                    "SKYPILOT_NODE_RANK": str(rank),
                    "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1",
                },
                cwd=tmp_path,
            )
            for rank in range(TASK["num_nodes"])
        ]
        assert [node.wait(timeout=300) for node in nodes] == [0, 0]
        found = {
            (point.resource["ml.experiment.id"], point.resource["ml.rank"], point.resource["ml.world_size"])
            for point in server.points("loss")
        }

    assert found == {("sky-2026-11-27-digits-1", rank, 2) for rank in range(2)}
