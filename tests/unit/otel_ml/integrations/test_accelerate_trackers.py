"""Accelerate's trackers in one process, beside each other and one after the other: each records into its own run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml.integrations.huggingface import OtelMLTracker


def started(experiment: str) -> OtelMLTracker:
    from accelerate import Accelerator

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
