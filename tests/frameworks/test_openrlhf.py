"""OpenRLHF's loggers with its own package: what they write by themselves, and what is in the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.jobs import Scalars, answer_of, environment, finished, scalars_in, the_run_in
from tests.examples.running import EXAMPLES
from tests.frameworks.environments import environment_with_only
from tests.frameworks.originals import (
    as_tensorboard_keeps_it,
    scalars_of_tensorboard,
    scalars_of_wandb,
    tables_of_wandb,
    without_otel_ml,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

LOGGERS = EXAMPLES / "migrate" / "openrlhf_loggers.py"
PACKAGES = ["openrlhf==0.11.2", "pylatexenc"]
VARIABLES = environment(OTEL_ML_EXPORTERS="jsonl", WANDB_MODE="offline")
OVER = {"train/*": "train/global_step"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with_only(PACKAGES, tmp_path_factory.mktemp("openrlhf"))


def of(values: Scalars, group: str) -> Scalars:
    return {name: at for name, at in values.items() if name.startswith(group) and name not in OVER.values()}


def test_what_openrlhf_logs_to_wandb_is_in_the_run_as_wandb_and_tensorboard_have_it(
    python: Path, tmp_path: Path
) -> None:
    finished([python, LOGGERS], VARIABLES, tmp_path)
    by_itself = tmp_path / "by-itself"
    by_itself.mkdir()
    finished([python, without_otel_ml(LOGGERS, by_itself)], VARIABLES, by_itself)

    run = the_run_in(tmp_path / "otel-ml-runs")
    ours, theirs = scalars_in("jsonl", run), scalars_of_wandb(by_itself, OVER)
    assert sorted(theirs["train/policy_loss"]) == [1, 2, 3, 4, 5, 6]
    assert of(ours, "train/") == of(theirs, "train/")
    # OpenRLHF has its evaluations drawn over `eval/epoch`, which it does not log. W&B fills in 0 for it.
    assert set(theirs.pop("eval/epoch").values()) == {0.0}
    assert of(ours, "eval/") == of(theirs, "eval/")
    assert list(ours["eval/global_step"].values()) == [3.0, 6.0]
    assert as_tensorboard_keeps_it(of(ours, "train/")) == of(scalars_of_tensorboard(tmp_path / "outputs"), "train/")
    assert ours["my/reward"] == ours["train/reward"]
    stored = answer_of("jsonl", run)
    assert stored["tables"] == tables_of_wandb(by_itself)
    assert [len(rows) for *_, rows in stored["tables"]] == [1, 2, 3, 4, 5, 6]
    assert "k" * 40 not in str(stored["params"])


def test_what_openrlhf_logs_to_tensorboard_is_in_the_run_as_tensorboard_has_it(python: Path, tmp_path: Path) -> None:
    program = without_otel_ml(
        LOGGERS,
        tmp_path,
        "import torch.utils.tensorboard",
        "from otel_ml.compat.tensorboard import SummaryWriter",
        "torch.utils.tensorboard.SummaryWriter = SummaryWriter",
    )
    by_itself = tmp_path / "by-itself"
    by_itself.mkdir()
    finished([python, without_otel_ml(LOGGERS, by_itself)], VARIABLES, by_itself)

    finished([python, program], VARIABLES, tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    ours = {name: at for name, at in scalars_in("jsonl", run).items() if not name.startswith("otel_ml/")}
    assert as_tensorboard_keeps_it(ours) == scalars_of_tensorboard(by_itself / "outputs")
    assert [step for _, step, _ in answer_of("jsonl", run)["texts"]] == [1, 2, 3, 4, 5, 6]
