"""AReaL's `StatsLogger` and `stats_tracker` with its own package: what it writes by itself, and what is in the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.jobs import Scalars, environment, finished, scalars_in, the_run_in, torchrun
from tests.examples.running import EXAMPLES
from tests.frameworks.environments import environment_with_only
from tests.frameworks.originals import (
    as_tensorboard_keeps_it,
    scalars_of_tensorboard,
    scalars_of_wandb,
    without_otel_ml,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

STATS = EXAMPLES / "migrate" / "areal_stats.py"
PACKAGES = [
    "areal==1.0.4",
    *("aiofiles", "einops", "jiter", "lark", "llvmlite", "numba", "openai", "tabulate", "tenacity", "torchdata"),
]
INSTEAD_OF_TENSORBOARD = (
    "import tensorboardX",
    "from otel_ml.compat.tensorboard import SummaryWriter",
    "tensorboardX.SummaryWriter = SummaryWriter",
)
LOOP = "for step in range(EPOCHS * STEPS_PER_EPOCH):"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with_only(PACKAGES, tmp_path_factory.mktemp("areal"))


def run_of(program: Path, python: Path, cwd: Path) -> Path:
    _, *launcher = torchrun(2, program)
    finished([python, *launcher], environment(OTEL_ML_EXPORTERS="jsonl"), cwd)
    return the_run_in(cwd / "otel-ml-runs")


def written_by_areal(run: Path) -> Scalars:
    shown = scalars_in("jsonl", run)
    return {name: values for name, values in shown.items() if name != "sequences" and not name.startswith("otel_ml/")}


def test_what_areal_logs_to_wandb_is_in_the_run_as_it_wrote_it_to_tensorboard(python: Path, tmp_path: Path) -> None:
    run = run_of(STATS, python, tmp_path)

    theirs = scalars_of_tensorboard(tmp_path / "outputs")
    assert sorted(theirs["ppo_actor/loss/avg"]) == [0, 1, 2, 3, 4, 5]
    assert theirs["ppo_actor/n_seqs"] == dict.fromkeys(range(6), 8.0)
    assert not any(name.startswith("ppo_actor/of_none") for name in theirs)
    assert as_tensorboard_keeps_it(written_by_areal(run)) == theirs
    assert scalars_in("jsonl", run)["sequences"] == dict.fromkeys(range(6), 8.0)


def test_what_areal_logs_to_tensorboard_is_in_the_run_as_it_wrote_it_to_wandb(python: Path, tmp_path: Path) -> None:
    run = run_of(without_otel_ml(STATS, tmp_path, *INSTEAD_OF_TENSORBOARD), python, tmp_path)

    theirs = scalars_of_wandb(tmp_path)
    assert sorted(theirs["ppo_actor/loss/avg"]) == [0, 1, 2, 3, 4, 5]
    assert written_by_areal(run) == theirs


def test_a_job_of_areal_that_recovers_goes_on_in_its_run(python: Path, tmp_path: Path) -> None:
    program = tmp_path / STATS.name
    program.write_text(STATS.read_text().replace(LOOP, "for step in range(3):"))
    first = run_of(program, python, tmp_path)
    recovered = "    logger.load_state_dict({'last_commit_step': 2})\n    for step in range(3, 6):"
    program.write_text(STATS.read_text().replace(f"    {LOOP}", recovered))

    second = run_of(program, python, tmp_path)

    assert first == second
    theirs = scalars_of_tensorboard(tmp_path / "outputs")
    assert sorted(theirs["ppo_actor/loss/avg"]) == [0, 1, 2, 3, 4, 5]
    assert as_tensorboard_keeps_it(written_by_areal(second)) == theirs
