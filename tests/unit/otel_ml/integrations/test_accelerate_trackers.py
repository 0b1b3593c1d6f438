"""Accelerate's trackers in one process, beside each other and one after the other: each records into its own run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import otel_ml
from otel_ml.testing import Capture

if TYPE_CHECKING:
    from otel_ml.integrations.huggingface import OtelMLTracker


def started(experiment: str) -> OtelMLTracker:
    from accelerate import Accelerator

    from otel_ml.integrations.huggingface import OtelMLTracker

    tracker = OtelMLTracker(experiment)
    Accelerator(log_with=tracker, cpu=True).init_trackers(experiment)
    return tracker


@pytest.fixture(autouse=True)
def written_to_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")


def folder_of(tracker: OtelMLTracker) -> Path:
    assert tracker.tracker is not None
    assert tracker.tracker.dir is not None
    return tracker.tracker.dir


def values_in(folder: Path) -> dict[str, Any]:
    return {name: values for name, (_, values) in otel_ml.read(folder).items() if not name.startswith("otel_ml/")}


def test_what_a_finished_tracker_logs_is_not_in_the_run_of_the_next_one(capsys: pytest.CaptureFixture[str]) -> None:
    first = started("first")
    first.finish()
    second = started("second")
    folder = folder_of(second)
    first.log({"late": 1.0, "note": "late"}, step=0)
    first.store_init_configuration({"late": 1})
    first.log_table("late", ["a"], [[1]])
    second.log({"loss": 1.0}, step=0)
    second.finish()

    assert values_in(folder) == {"loss": [1.0]}
    assert '"late"' not in (folder / "metrics.jsonl").read_text()
    assert "no run is current" in capsys.readouterr().err


def test_trackers_beside_each_other_log_and_end_their_own_runs() -> None:
    first, second = started("first"), started("second")
    folders = folder_of(first), folder_of(second)
    for step in range(2):
        first.log({"loss": 1.0 + step}, step=step)
        second.log({"loss": 10.0 + step}, step=step)
    first.finish()
    second.log({"loss": 12.0}, step=2)
    second.finish()

    assert [values_in(folder) for folder in folders] == [{"loss": [1.0, 2.0]}, {"loss": [10.0, 11.0, 12.0]}]


def test_figures_and_files_are_recorded_by_the_methods_of_accelerates_mlflow_tracker(
    otel_ml_capture: Capture, tmp_path: Path
) -> None:
    import matplotlib.pyplot as plt

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("a")
    tracker = started("digits")
    figure, axes = plt.subplots()
    axes.plot([1, 2])

    tracker.log_figure(figure, "curves.png", save_kwargs={"dpi": 50})
    tracker.log_artifact(str(tmp_path / "notes" / "a.txt"), artifact_path="texts")
    tracker.log_artifact(str(tmp_path / "notes" / "a.txt"))
    tracker.log_artifacts(str(tmp_path / "notes"), artifact_path="all")
    tracker.log_artifacts(str(tmp_path / "notes"))

    kept = [event for event in otel_ml_capture.events if event.kind in {"ml.image", "ml.artifact"}]
    assert [event.name for event in kept] == ["curves.png", "texts/a.txt", "a.txt", "all", "notes"]
    assert [event.body for event in kept[1:]] == [b"a"] * 4
    plt.close(figure)


def test_an_accelerate_that_starts_no_tracker_is_refused_with_the_version_that_does(tmp_path: Path) -> None:
    older = tmp_path / "accelerate"
    older.mkdir()
    (older / "__init__.py").touch()
    (older / "state.py").write_text("class PartialState: ...\n")
    (older / "tracking.py").write_text("class GeneralTracker: ...\n")

    done = subprocess.run(
        [sys.executable, "-c", "from otel_ml.integrations.huggingface import OtelMLTracker"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "OtelMLTracker needs the package 'accelerate>=1.8'." in done.stderr


def test_an_array_of_texts_is_said_and_costs_no_other_value(otel_ml_capture: Capture) -> None:
    from otel_ml.integrations.huggingface.values import log_values

    log_values({"names": np.array(["a", "b"]), "scores": np.array([1.0, 3.0])}, 1)

    assert [(point.name, point.value) for point in otel_ml_capture.points] == [("scores", 2.0)]
    assert len(otel_ml_capture.notices) == 1


def test_what_is_no_mapping_is_said(otel_ml_capture: Capture) -> None:
    started("said").log(0.5, step=3)  # type: ignore[arg-type]

    assert "log()" in otel_ml_capture.notices[-1]


def test_a_list_of_numbers_of_numpy_is_its_mean(otel_ml_capture: Capture) -> None:
    started("lists").log({"per_class": [np.float32(1.0), np.float32(3.0)]}, step=0)

    assert otel_ml_capture.values("per_class") == [2.0]
