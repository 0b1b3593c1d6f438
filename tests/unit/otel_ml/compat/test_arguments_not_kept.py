"""An argument of the original that has no place here is said at the call, and with what happens instead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_ml.compat import mlflow, wandb
from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.compat.verl import RLInsightLogger
from otel_ml.testing import Capture, capture
from tests.surroundings import SOURCES
from tests.unit.otel_ml.compat.recorded import events, written


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def trace_state() -> None:
    with wandb.init(), RLInsightLogger.trace_state("generate", state_lane_id=3, phase="warm"):
        pass


def nested(**given: Any) -> None:
    with mlflow.start_run(), mlflow.start_run(nested=True, **given):
        pass


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "hparams-step": (written(lambda w: w.add_hparams({"lr": 1}, {"acc": 1}, global_step=7)), "global_step=7"),
    "hparams-domain": (
        written(lambda w: w.add_hparams({"lr": 1}, {"acc": 1}, hparam_domain_discrete={"lr": [1, 2]})),
        "hparam_domain_discrete={'lr': [1, 2]}",
    ),
    "object3d": (lambda: wandb.Object3D(np.zeros((2, 3)), caption="cloud"), "wandb.Object3D(caption='cloud')"),
    "molecule": (lambda: wandb.Molecule.from_smiles("C", sanitize=False, caption="methane"), "caption='methane'"),
    "molecule-sanitize": (lambda: wandb.Molecule.from_smiles("C", sanitize=True), "Molecule(sanitize=True)"),
    "reference": (
        lambda: wandb.Artifact("set", "dataset").add_reference("s3://bucket/set", max_objects=9),
        "Artifact.add_reference(max_objects=9)",
    ),
    "video-format": (lambda: wandb.Video(__file__, fps=4, format="gif"), "wandb.Video(fps=4, format='gif')"),
    "audio-file": (lambda: wandb.Audio(__file__, caption="voice"), "wandb.Audio(caption='voice')"),
    "video-file": (lambda: wandb.Video("missing.mp4", caption="run"), "wandb.Video(caption='run')"),
    "restore-run": (lambda: mlflow.restore_run("abc"), "mlflow.restore_run('abc')"),
    "restore-experiment": (lambda: mlflow.restore_experiment("digits"), "mlflow.restore_experiment('digits')"),
    "system-metrics": (lambda: mlflow.set_system_metrics_node_id("n1"), "set_system_metrics_node_id('n1')"),
    "nested-run-id": (lambda: nested(run_id="01M8"), "mlflow.start_run(run_id='01M8'"),
    "nested-experiment": (lambda: nested(experiment_id="other"), "experiment_id='other'"),
    "image-file-and-key": (
        lambda: mlflow.log_image(np.zeros((4, 4)), "a.png", key="dog"),
        "TypeError: artifact_file cannot be used with key, step or timestamp. It is kept as 'dog'.",
    ),
    "settings": (
        lambda: wandb.init(settings=wandb.Settings(base_url="http://w", silent=True)),
        "Settings(base_url='http://w')",
    ),
    "settings-mapping": (
        lambda: wandb.init(settings={"console": "wrap", "x_label": "r0"}),
        "(console='wrap', x_label='r0')",
    ),
    "settings-unknown": (lambda: wandb.init(settings={"call": 1, 2: 3}), "wandb.Settings(call=1, 2=3)"),
    "setup of a text": (lambda: (wandb.setup("night"), wandb.setup({"run_group": "a"})), "wandb.setup(run_group='a')"),
    "setup": (lambda: wandb.setup(wandb.Settings(run_group="night")), "wandb.setup(run_group='night')"),
    "trace-state": (trace_state, "state_lane_id=3"),
}


@pytest.mark.parametrize(("call", "said"), CALLS.values(), ids=CALLS)
def test_what_has_no_place_is_said_with_what_was_given(
    captured: Capture, monkeypatch: pytest.MonkeyPatch, call: Callable[[], Any], said: str
) -> None:
    monkeypatch.setenv("VERL_RL_INSIGHT_ENABLE", "1")
    call()

    assert any(said in notice and "explain not-kept" in notice for notice in captured.notices), captured.notices


@pytest.mark.parametrize(
    ("bins", "max_bins", "expected"),
    [
        ([0.0, 1.0, 4.0], None, ([1, 3], [0.0, 1.0, 4.0])),
        (np.array([0.0, 2.0, 4.0]), None, ([2, 2], [0.0, 2.0, 4.0])),
        (4, None, ([1, 1, 1, 1], [0.5, 1.375, 2.25, 3.125, 4.0])),
        ([0.0, 1.0, 2.0, 3.0, 4.0], 2, ([2, 2], [0.0, 2.0, 4.0])),
    ],
    ids=["edges", "array", "number", "at-most"],
)
def test_the_bins_of_a_histogram_are_those_that_were_asked_for(
    captured: Capture, bins: Any, max_bins: int | None, expected: tuple[list[int], list[float]]
) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_histogram("h", np.array([0.5, 1.5, 2.5, 4.0]), 1, bins=bins, max_bins=max_bins)

    body = events(captured, "histogram")["h"].body
    assert (list(body["counts"]), list(body["edges"])) == expected


@pytest.mark.parametrize("rule", ["auto", "fd", "sturges"])
def test_a_rule_of_numpy_makes_the_bins_of_a_histogram(captured: Capture, rule: str) -> None:
    values = np.random.default_rng(3).normal(size=200)
    with SummaryWriter("runs/digits") as writer:
        writer.add_histogram("h", values, 1, bins=rule)

    assert list(events(captured, "histogram")["h"].body["counts"]) == np.histogram(values, bins=rule)[0].tolist()


def test_a_nested_run_that_has_ended_goes_on_under_its_id(captured: Capture, tmp_path: Path) -> None:
    with mlflow.start_run():
        with mlflow.start_run(run_name="trial", nested=True) as trial:
            mlflow.log_metric("loss", 1.0, step=1)
        with mlflow.start_run(run_id=trial.info.run_id, nested=True) as again:
            mlflow.log_metric("loss", 0.5, step=2)

    assert again.info.run_id == trial.info.run_id
    assert captured.values("trial/loss") == [1.0, 0.5]
    assert not captured.notices


def said_by(program: str, folder: Path) -> list[str]:
    """Return what a program says on stderr of what is not kept."""
    path = folder / "train.py"
    path.write_text(f"from otel_ml.compat import mlflow, wandb\n{program}\n")
    environment = {**os.environ, "PYTHONPATH": SOURCES, "OTEL_ML_EXPORTERS": "jsonl"}
    done = subprocess.run(
        [sys.executable, path], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return [line for line in done.stderr.splitlines() if "otel-ml explain not-kept" in line]


OF_NO_RUN = "mlflow.delete_run('abc')"
OF_A_RUN = "with mlflow.start_run(): mlflow.log_metric('loss', 0.5)"


@pytest.mark.parametrize(
    ("program", "place"),
    [
        (OF_NO_RUN, "train.py:2"),
        (f"{OF_NO_RUN}\n{OF_A_RUN}", "train.py:2"),
        (f"{OF_A_RUN}\n{OF_NO_RUN}", "train.py:3"),
    ],
    ids=["no run", "before a run", "after a run"],
)
def test_a_call_outside_of_a_run_is_said_once(program: str, place: str, tmp_path: Path) -> None:
    [said] = said_by(program, tmp_path)

    assert f"delete_run('abc') at {place} is accepted" in said


def test_a_disabled_run_of_wandb_is_silent_as_there(tmp_path: Path) -> None:
    table = "wandb.Table(columns=['a'], log_mode='INCREMENTAL')"

    assert said_by(f"with wandb.init(mode='disabled'): {table}", tmp_path) == []
    [said] = said_by(f"with wandb.init(mode='disabled'): pass\n{table}", tmp_path)
    assert "log_mode='INCREMENTAL'" in said


def test_what_is_said_of_a_with_block_names_the_place_of_the_program(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    with RLInsightLogger.trace_state("generate", phase="warm"):
        pass

    [said] = captured.notices
    assert "RLInsightLogger.trace_state(phase='warm') at test_arguments_not_kept.py:" in said
