"""The store that MLflow takes where it is told none: ours is the original's, whatever there is in the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from otel_ml.compat import mlflow


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow itself, as it is in a process that has told it nothing."""
    import mlflow as package

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("OTEL_ML_EXPORTERS", raising=False)
    package.set_tracking_uri(None)
    return package


@pytest.mark.parametrize(
    "there",
    ["", "mlflow.db", "mlruns/readme", "mlruns/0/meta.yaml", "mlruns/models/meta.yaml", "mlruns/7/x", "mlruns/.trash"],
)
@pytest.mark.parametrize("name", ["plain", "with space", "100%", "ümlaut", "a?b"])
def test_the_store_of_a_folder_is_mlflows(
    original: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: str, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    monkeypatch.chdir(folder)
    if there:
        (folder / there).parent.mkdir(parents=True, exist_ok=True)
        (folder / there).touch()

    ours, theirs = mlflow.get_tracking_uri(), original.get_tracking_uri()
    assert _place(ours) == _place(theirs)


def _place(uri: str) -> tuple[str, str]:
    """Return what an address leads to, however it is written: MLflow's versions write `%` in different ways."""
    scheme, _, path = uri.partition(":")
    return scheme, unquote(path)


def test_a_job_that_names_its_exporters_decides(original: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    assert mlflow.get_tracking_uri() == ""
    assert not mlflow.is_tracking_uri_set()
