"""SkyRL's `Tracking` with its own package: what it writes into W&B by itself, and what is in the run."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import Scalars, answer_of, environment, finished, scalars_in, the_run_in
from tests.examples.running import EXAMPLES
from tests.frameworks.environments import environment_with_only
from tests.frameworks.originals import scalars_of_wandb, tables_of_wandb, without_otel_ml
from tests.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

TRACKING = EXAMPLES / "migrate" / "skyrl_tracking.py"
PACKAGES = ["skyrl==0.3.0", "skyrl_gym", "loguru"]
VARIABLES = environment(OTEL_ML_EXPORTERS="jsonl", WANDB_MODE="offline")
FAILS = ("            self.step()\n", "            self.step()\n            assert self.global_step < 4, 'broken'\n")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with_only(PACKAGES, tmp_path_factory.mktemp("skyrl"))


def but_for_times(values: Scalars) -> tuple[Scalars, dict[str, list[int]]]:
    """Return what is the same in two runs: of durations the steps alone."""
    own = {name: at for name, at in values.items() if not name.startswith("otel_ml/") and name != "my/reward"}
    lasting = {name for name in own if name.startswith("timing/")}
    return {name: at for name, at in own.items() if name not in lasting}, {name: sorted(own[name]) for name in lasting}


def test_what_skyrl_logs_to_wandb_is_in_the_run_as_wandb_has_it(python: Path, tmp_path: Path) -> None:
    finished([python, TRACKING], VARIABLES, tmp_path)
    finished([python, without_otel_ml(TRACKING, tmp_path)], VARIABLES, tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    theirs = scalars_of_wandb(tmp_path)
    assert sorted(theirs["eval/avg_score"]) == [0, 2, 4, 6]
    assert but_for_times(scalars_in("jsonl", run)) == but_for_times(theirs)
    assert sorted(theirs["timing/step"]) == [1, 2, 3, 4, 5, 6]
    assert scalars_in("jsonl", run)["my/reward"] == theirs["reward/avg_raw_reward"]
    stored = answer_of("jsonl", run)
    assert stored["tables"] == tables_of_wandb(tmp_path)
    assert [len(rows) for *_, rows in stored["tables"]] == [2, 4, 6, 8, 10, 12]
    assert stored["params"]["trainer.policy.optimizer_config.lr"] == 0.1


def test_the_traceback_that_skyrl_logs_before_it_ends_is_in_the_run(python: Path, tmp_path: Path) -> None:
    program = tmp_path / TRACKING.name
    program.write_text(TRACKING.read_text().replace(*FAILS))
    finished([python, program], VARIABLES, tmp_path, code=1)
    plain = without_otel_ml(program, tmp_path)

    def has_the_original_its_last_row() -> bool:
        finished([python, plain], VARIABLES, tmp_path, code=1)
        return tables_of_wandb(tmp_path)[-1][0] == "error/tracebacks"

    eventually(has_the_original_its_last_row, timeout=300)  # on a busy machine W&B may end before it has written it
    run = the_run_in(tmp_path / "otel-ml-runs")
    [*_, [name, step, columns, rows]] = answer_of("jsonl", run)["tables"]
    [*_, [their_name, their_step, their_columns, their_rows]] = tables_of_wandb(tmp_path)
    assert (name, step, columns) == (their_name, their_step, their_columns) == ("error/tracebacks", 4, their_columns)
    assert [row[:2] for row in rows] == [row[:2] for row in their_rows] == [[6, "AssertionError"]]
    assert "AssertionError: broken" in rows[0][2]
    assert otel_ml.read(run)["my/reward"][0] == [1, 2, 3, 4]
    assert but_for_times(scalars_in("jsonl", run)) == but_for_times(scalars_of_wandb(tmp_path))
