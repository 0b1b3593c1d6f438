"""TRL's GRPO with evaluation: what a reward function records in an evaluation is not averaged into training."""

from __future__ import annotations

from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import scalars_in
from tests.examples.running import run_of


@pytest.mark.timeout(600)  # it imports torch, transformers and TRL
def test_rewards_of_an_evaluation_are_apart_from_those_of_training_and_both_are_trls_own(tmp_path: Path) -> None:
    run = run_of("trl_grpo_evaluation.py", tmp_path)

    shown = otel_ml.read(run)
    for ours, theirs, steps in (
        ("my/reward", "train/reward", [1, 2, 3, 4, 5, 6]),
        ("eval/my/reward", "eval/reward", [3, 6]),
    ):
        assert shown[ours][0] == shown[theirs][0] == steps
        assert shown[ours][1] == pytest.approx(shown[theirs][1], rel=1e-6)
    assert sorted(scalars_in("tensorboard", run)["eval/my/reward"]) == [3, 6]
