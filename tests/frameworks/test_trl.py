"""TRL's GRPO with its own package: the completions that it writes, and the parts of a step that it profiles."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas
import pytest

import otel_ml
from tests.e2e.jobs import answer_of, environment, finished, the_run_in

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]  # it imports torch, transformers and TRL


def test_completions_and_times_that_trl_reports_to_wandb_are_in_the_run(tmp_path: Path) -> None:
    finished([sys.executable, "-m", "tests.frameworks.trl_completions"], environment(), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    tables = {(name, step): (columns, rows) for name, step, columns, rows in answer_of("jsonl", run)["tables"]}
    assert set(tables) == {("completions", 1), ("completions", 2), ("eval/completions", 2)}
    # Of two tables of one step TRL keeps the newer one, here that of the evaluation.
    for name, step in (("completions", 1), ("eval/completions", 2)):
        columns, rows = tables[name, step]
        kept = pandas.read_parquet(tmp_path / "out" / "completions" / f"completions_{step:05d}.parquet")
        assert columns == list(kept.columns)
        assert columns == ["step", "prompt", "completion", "lengths", "letters", "advantage"]
        assert rows == kept.values.tolist()
    timed = otel_ml.read(run)
    for part in ("compute_loss", "_prepare_inputs", "transformers.generate", "lengths"):
        assert timed[f"time/GRPOTrainer.{part}"][0] == [1, 2]
        assert timed[f"eval/time/GRPOTrainer.{part}"][0] == [2]
