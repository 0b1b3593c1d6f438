"""Scripts of four trackers, with only their imports changed: what they log is in the real backends."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml.compat import wandb
from tests.e2e.jobs import (
    BACKENDS,
    ROOT,
    Scalars,
    all_finished,
    answer_of,
    environment,
    finished,
    processes,
    runs_in,
    the_run_in,
    torchrun,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCRIPTS = ROOT / "examples" / "migrate"
LOSSES = {step: 1 / (1 + step) for step in range(30)}
WRITTEN_TO = {
    "wandb": ",".join(BACKENDS),
    "ranks": "jsonl",
    "tensorboard": "jsonl,tensorboard",
    "mlflow": "jsonl,mlflow",
    "verl": "",  # the script names its backends itself
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Run every script once, all at the same time, and W&B's on two ranks too."""
    folder = tmp_path_factory.mktemp("scripts")
    programs = {name: [sys.executable, SCRIPTS / f"{name}_script.py"] for name in WRITTEN_TO if name != "ranks"}
    programs["ranks"] = torchrun(2, SCRIPTS / "wandb_script.py")
    commands = [
        (programs[name], environment(OTEL_ML_DIR=folder / name, OTEL_ML_EXPORTERS=exporters, WANDB_MODE="offline"))
        for name, exporters in WRITTEN_TO.items()
    ]
    with processes(commands, folder) as started:
        said = all_finished(started)
    assert not [text for text in said if "internal-error" in text or "not-kept" in text], said
    return {name: the_run_in(folder / name) for name in WRITTEN_TO}


@cache
def stored(backend: str, run: Path) -> dict[str, Any]:
    """Return what the backend says of a run, with the scalars as name → step → value."""
    answer = answer_of(backend, run)
    shown: Scalars = {}
    for name, _, step, value, *_ in [*answer["scalars"], *answer.get("amendments", [])]:
        shown.setdefault(name, {})[step] = float(value)
    return {**answer, "shown": shown}


@pytest.mark.feature("F23", "yes", "W&B, TensorBoard, MLflow and verl scripts, read back from all backends")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wandb_script_is_in_every_backend_with_the_names_it_has_in_wandb(
    runs: Mapping[str, Path], backend: str
) -> None:
    shown = stored(backend, runs["wandb"])["shown"]

    steps = [step for step in range(33) if step % 11 != 10]
    assert shown["train/loss"] == pytest.approx(dict(zip(steps, LOSSES.values(), strict=True)))
    assert shown["val/acc"] == {0: 0.25, 1: 0.5, 2: 0.75}
    assert shown["epoch"] == {10: 0.0, 21: 1.0, 32: 2.0}


def test_a_wandb_script_s_config_summary_table_and_pictures_are_in_wandb(runs: Mapping[str, Path]) -> None:
    answer = stored("wandb", runs["wandb"])

    assert answer["params"]["lr"] == 0.1
    assert answer["summary"]["best"] == 0.75
    assert answer["summary"]["train/loss.min"] == pytest.approx(1 / 30)
    assert "demo" in answer["tags"]
    named = {kind: json.dumps(answer[kind]) for kind in ("tables", "images", "histograms")}
    assert '"samples"' in named["tables"]
    assert '"digit"' in named["images"]
    assert '"weights"' in named["histograms"]


def test_two_ranks_of_a_wandb_script_are_one_run_of_their_mean(runs: Mapping[str, Path]) -> None:
    one, two = otel_ml.read(runs["wandb"]), otel_ml.read(runs["ranks"])

    for name in ("train/loss", "val/acc", "epoch"):
        assert two[name] == one[name], name


def test_a_tensorboard_script_is_in_tensorboard_as_it_was(runs: Mapping[str, Path]) -> None:
    answer = stored("tensorboard", runs["tensorboard"])
    shown = answer["shown"]

    assert shown["train/loss"] == pytest.approx(LOSSES)
    assert shown["val/acc"] == {0: 0.25, 1: 0.5, 2: 0.75}
    assert shown["lr/encoder"] == pytest.approx({9: 0.1, 19: 0.1, 29: 0.1})
    assert answer["params"]["lr"] == 0.1
    for kind, name in (("images", "curve"), ("texts", "note"), ("histograms", "weights")):
        assert f'"{name}' in json.dumps(answer[kind]), kind


def test_an_mlflow_script_is_in_mlflow_as_it_was(runs: Mapping[str, Path]) -> None:
    answer = stored("mlflow", runs["mlflow"])
    shown = answer["shown"]

    assert shown["train_loss"] == pytest.approx(LOSSES)
    assert shown["test_acc"] == {29: 0.75}
    assert list(shown["trial-1/acc"].values()) == [0.5]
    assert {answer["params"]["lr"], answer["params"]["trial-1.depth"]} == {"0.1", "1"}
    assert "predictions.json" in json.dumps(answer["tables"])
    assert "notes.txt" in json.dumps(answer["texts"])


def test_a_verl_script_that_finishes_nothing_has_its_final_validation(runs: Mapping[str, Path]) -> None:
    shown = stored("tensorboard", runs["verl"])["shown"]

    assert shown["actor/pg_loss"] == pytest.approx({step: 1 / step for step in range(1, 11)})
    assert shown["val/score"] == {10: 0.5}
    assert otel_ml.read(runs["verl"])["val/score"] == ([10], [0.5])


def test_a_script_that_never_finishes_its_run_has_its_summary_and_its_files(tmp_path: Path) -> None:
    program = tmp_path / "script.py"
    program.write_text(
        "from pathlib import Path\n"
        "from otel_ml.compat import wandb\n"
        "run = wandb.init(project='digits')\n"
        "wandb.define_metric('loss', summary='min')\n"
        "for loss in (3.0, 1.0, 2.0):\n"
        "    wandb.log({'loss': loss})\n"
        "Path(run.dir, 'notes.txt').write_text('fine')\n"
        "raise RuntimeError('at the end')\n"
    )

    finished([sys.executable, program], environment(OTEL_ML_EXPORTERS="jsonl"), tmp_path, code=1)

    run = the_run_in(tmp_path / "otel-ml-runs")
    said = (run / "metrics.jsonl").read_text()
    assert otel_ml.read(run)["loss"] == ([0, 1, 2], [3.0, 1.0, 2.0])
    assert '"loss.min": 1.0' in said or '"loss.min":1.0' in said
    assert "notes.txt" in said
    assert '"failed"' in said


def test_runs_one_after_the_other_in_one_process_are_runs_of_their_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    for trial in range(2):
        run = wandb.init(project="sweep", name=f"trial-{trial}", config={"trial": trial}, reinit=True)
        run.log({"loss": float(trial)})
    wandb.finish()

    assert [otel_ml.read(folder)["loss"] for folder in runs_in(tmp_path / "otel-ml-runs")] == [
        ([0], [0.0]),
        ([0], [1.0]),
    ]
    assert wandb.run is None
