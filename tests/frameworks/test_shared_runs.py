"""slime and prime-rl, which no package index has: the calls of W&B's client that they make, in several processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.jobs import Scalars, environment, finished, scalars_in, the_run_in
from tests.frameworks.originals import scalars_of_wandb

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).parent
SLIME = {
    "train/*": "train/step",
    "rollout/*": "rollout/step",
    "multi_turn/*": "rollout/step",
    "passrate/*": "rollout/step",
    "eval/*": "eval/step",
    "perf/*": "rollout/step",
}


def with_otel_ml(program: Path, folder: Path, **variables: str) -> Scalars:
    """Return what is in the run of a program whose `import wandb` is changed."""
    changed = folder / program.name
    changed.write_text(program.read_text().replace("\nimport wandb\n", "\nfrom otel_ml.compat import wandb\n"))
    variables |= {"OTEL_ML_EXPORTERS": "jsonl", "WANDB_MODE": "online"}  # offline, W&B has no shared runs
    finished([sys.executable, changed], environment(**variables), folder)
    shown = scalars_in("jsonl", the_run_in(folder / "otel-ml-runs"))
    return {name: values for name, values in shown.items() if not name.startswith("otel_ml/")}


def test_what_the_processes_of_slime_log_is_in_one_run_over_what_slime_draws_it_over(tmp_path: Path) -> None:
    ours = with_otel_ml(HERE / "slime_calls.py", tmp_path)

    finished([sys.executable, HERE / "slime_calls.py"], environment(WANDB_MODE="offline"), tmp_path)
    theirs = scalars_of_wandb(tmp_path, SLIME)
    assert sorted(theirs["train/loss"]) == [0, 1, 2, 3, 4, 5]
    assert sorted(theirs["eval/math"]) == [0, 2]
    assert {name: values for name, values in ours.items() if name not in SLIME.values()} == theirs


def test_what_the_processes_of_prime_rl_log_is_in_one_run_at_prime_rls_steps(tmp_path: Path) -> None:
    ours = with_otel_ml(HERE / "prime_rl_calls.py", tmp_path, WANDB_RUN_ID="of-both")

    finished([sys.executable, HERE / "prime_rl_calls.py"], environment(WANDB_MODE="offline"), tmp_path)
    at_time = {"dispatcher/*": "_timestamp", "inference/*": "_timestamp"}
    theirs = scalars_of_wandb(tmp_path, {**at_time, "*": "step"})
    assert sorted(theirs["loss/mean"]) == sorted(theirs["progress/tokens"]) == [0, 1, 2, 3]
    drawn_over_time = {name: ours.pop(name) for name in list(ours) if name.startswith(("dispatcher/", "inference/"))}
    assert ours == {name: values for name, values in theirs.items() if name in ours} | {"step": ours["step"]}
    assert theirs.keys() - ours.keys() == drawn_over_time.keys()
    assert drawn_over_time == {  # the last one of each step, which the next row tells
        "dispatcher/inflight": {0: 8.0, 1: 9.0, 2: 10.0},
        "inference/agg/queue/mean": {0: 4.0, 1: 5.0, 2: 6.0},
    }
