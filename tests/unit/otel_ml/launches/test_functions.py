"""Ranks that torch starts from a function are one run for each launch."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.otel_ml.launches.program import SPAWNED, STEP, ids


@pytest.mark.parametrize("told", [{}, {"SLURM_TASK_PID": "1", **STEP}], ids=["by nobody", "by srun of their parent"])
def test_spawned_ranks_agree_on_each_run_in_the_store_of_their_group(tmp_path: Path, told: Mapping[str, str]) -> None:
    program = tmp_path / "spawned.py"
    program.write_text(textwrap.dedent(SPAWNED))
    subprocess.run([sys.executable, program, tmp_path, json.dumps(told)], check=True, timeout=110, cwd=tmp_path)

    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))

    assert [rank for _, rank in first + second] == [0, 0, 1, 1]
    assert [run for run, _ in first] == [run for run, _ in second]
    assert first[0][0] != first[1][0]


LAUNCHES = """
import os, sys
from pathlib import Path
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from otel_ml._internal.identity.run_identity import identify
from otel_ml.config import Config

def config():
    return LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, run_id=sys.argv[2], rdzv_backend="c10d",
                        rdzv_endpoint="localhost:0", max_restarts=1, monitor_interval=0.1, start_method="fork")

def train(launch):
    attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
    run_id = identify(Config.from_env(os.environ), os.environ).run_id
    Path(sys.argv[1], f"{launch}-{attempt}-{rank}").write_text(run_id)
    while len(list(Path(sys.argv[1]).glob(f"{launch}-{attempt}-*"))) < 2:
        os.sched_yield()
    assert "fails" not in sys.argv or attempt == "1"

if __name__ == "__main__":
    same = config()
    for launch in range(2):
        elastic_launch(same if "same" in sys.argv else config(), train)(launch)
"""


def ids_of_launches(folder: Path, *arguments: str, **variables: str) -> list[set[str]]:
    """Return the ids of the ranks of each of two launches of one program, over all attempts."""
    program, found = folder / "launches.py", folder / "found"
    program.write_text(LAUNCHES)
    found.mkdir()
    command = f"exec {sys.executable} {program} {found} {' '.join(arguments)}"
    ids(f"export SLURM_TASK_PID=$BASHPID; {command}", **variables)
    return [{path.read_text() for path in found.glob(f"{launch}-*")} for launch in range(2)]


@pytest.mark.parametrize("variables", [{}, STEP], ids=["by nobody", "as a task of slurm"])
@pytest.mark.parametrize("name", ["none", "digits"])
def test_two_launches_of_functions_by_one_program_or_notebook_are_two_runs(
    tmp_path: Path, name: str, variables: Mapping[str, str]
) -> None:
    first, second = ids_of_launches(tmp_path, name, **variables)

    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize("config", ["same", "another"])
def test_functions_that_torch_starts_again_are_in_the_run_of_their_launch(tmp_path: Path, config: str) -> None:
    first, second = ids_of_launches(tmp_path, "none", config, "fails")

    assert len(first) == len(second) == 1
    assert first != second
