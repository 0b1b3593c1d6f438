from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.otlp_sink import otlp_sink
from tests.contract.stored import RUN_ID
from tests.fakes.kubeflow_trainer import StatusServer


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Return the folder of a run as the service lays it out; the working directory is a folder of the test."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "digits" / RUN_ID
    folder.mkdir(parents=True)
    case = getattr(request.node, "callspec", None)
    match case.params["case"].id if case is not None and "case" in case.params else "":
        case "otlp" | "traces":
            with otlp_sink(folder) as url:
                monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
                yield folder
        case "kubeflow":
            server = StatusServer(tmp_path)
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
            yield folder
            server.close()
        case "mlflow":
            shutil.copy(request.getfixturevalue("mlflow_database"), tmp_path / "runs" / "mlflow.db")
            yield folder
        case "trackio":
            point_trackio_at(tmp_path / "runs" / "trackio", monkeypatch)
            yield folder
        case _:
            yield folder


def point_trackio_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trackio learns its folder when it is imported, once for a process; the tests of one process have one each."""
    monkeypatch.setenv("TRACKIO_DIR", str(folder))
    places = {"TRACKIO_DIR": folder, "MEDIA_DIR": folder / "media"}
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "trackio"]:
        for name, place in places.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, place)
