"""torchtitan's `MetricsProcessor` with its own package: what it writes by itself, and what is in the run."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

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

TRAINER = EXAMPLES / "migrate" / "torchtitan_trainer.py"
PACKAGES = ["torchtitan==0.3.0", "tyro", "docstring_parser", "spmd_types==0.2.3"]
INSTEAD_OF_TENSORBOARD = (
    "import torch.utils.tensorboard",
    "from otel_ml.compat.tensorboard import SummaryWriter",
    "torch.utils.tensorboard.SummaryWriter = SummaryWriter",
)

OF_THE_LOGGER = (
    "torchtitan.observability.structured_logger.jsonl_handler.register_jsonl_handler",
    "otel_ml.integrations.torchtitan.register_handler",
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with_only(PACKAGES, tmp_path_factory.mktemp("torchtitan"))


def run_of(program: Path, python: Path, cwd: Path, **variables: str) -> Path:
    _, *launcher = torchrun(2, program)
    finished([python, *launcher], environment(OTEL_ML_EXPORTERS="jsonl", WANDB_MODE="offline", **variables), cwd)
    return the_run_in(cwd / "otel-ml-runs")


def written_by_torchtitan(run: Path) -> Scalars:
    shown = scalars_in("jsonl", run)
    return {name: values for name, values in shown.items() if name != "tokens" and not name.startswith("otel_ml/")}


def test_what_torchtitan_logs_to_wandb_is_in_the_run_as_it_wrote_it_to_tensorboard(
    python: Path, tmp_path: Path
) -> None:
    run = run_of(TRAINER, python, tmp_path)

    theirs = scalars_of_tensorboard(tmp_path / "outputs")
    assert sorted(theirs["loss_metrics/global_avg_loss"]) == [1, 5, 10, 15, 20]
    assert sorted(theirs["validation_metrics/loss"]) == [10, 20]
    assert as_tensorboard_keeps_it(written_by_torchtitan(run)) == theirs
    assert scalars_in("jsonl", run)["tokens"] == dict.fromkeys(range(1, 21), 512.0)


def test_what_torchtitan_logs_to_tensorboard_is_in_the_run_as_it_wrote_it_to_wandb(
    python: Path, tmp_path: Path
) -> None:
    run = run_of(without_otel_ml(TRAINER, tmp_path, *INSTEAD_OF_TENSORBOARD), python, tmp_path)

    theirs = scalars_of_wandb(tmp_path / "outputs")
    assert sorted(theirs["loss_metrics/global_avg_loss"]) == [1, 5, 10, 15, 20]
    assert written_by_torchtitan(run) == theirs


def test_where_all_ranks_save_there_is_one_run_with_their_means(python: Path, tmp_path: Path) -> None:
    program = tmp_path / TRAINER.name
    program.write_text(TRAINER.read_text().replace("enable_wandb=True", "enable_wandb=True, save_for_all_ranks=True"))

    run = run_of(program, python, tmp_path)

    first, second = (scalars_of_tensorboard(folder) for folder in sorted(tmp_path.glob("outputs/tb/*/rank_*")))
    assert first["throughput(tps)"] != second["throughput(tps)"]
    for name, values in written_by_torchtitan(run).items():
        means = {step: fmean((value, second[name][step])) for step, value in first[name].items()}
        assert values == pytest.approx(means, rel=1e-6), name


def test_the_phases_that_torchtitan_logs_on_all_ranks_are_timers_at_its_steps(python: Path, tmp_path: Path) -> None:
    run = run_of(TRAINER, python, tmp_path, TITAN_STRUCT_LOGGER_HANDLERS=",".join(OF_THE_LOGGER))

    shown = scalars_in("jsonl", run)
    for phase in ("step", "optim"):
        theirs = longest_of(f"{phase}_end", tmp_path / "outputs")
        assert sorted(theirs) == list(range(1, 21))
        assert shown[f"time/{phase}"] == {step: pytest.approx(ms / 1000, abs=0.2) for step, ms in theirs.items()}
    assert shown["local_valid_tokens"] == dict.fromkeys(range(1, 21), 256.0)
    assert shown["tokens"] == dict.fromkeys(range(1, 21), 512.0)


def longest_of(kind: str, folder: Path) -> dict[int, float]:
    """Return step → the longest duration of two ranks in ms, as torchtitan's own files of its logger have it."""
    lines = [json.loads(line) for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines()]
    found: dict[int, list[float]] = {}
    for line in lines:
        if line.get("log_type_name") == kind:
            found.setdefault(line["step"], []).append(line["value"])
    assert all(len(values) == 2 for values in found.values())
    return {step: max(values) for step, values in found.items()}
