"""A disk that is full when a backend is opened: the next try, with space again, opens it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_ml_exporters.backends.mlflow import MlflowExporter
from otel_ml_exporters.errors import RetryableExportError
from tests.contract.stream import run_info, step
from tests.e2e.jobs import answer_of


@contextmanager
def full_disk(left: int) -> Iterator[None]:
    """Let no file grow beyond `left` bytes: what a write to a full disk does, without one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "left", [0, pytest.param(20_000, marks=pytest.mark.full), pytest.param(200_000, marks=pytest.mark.full)]
)
def test_mlflow_opens_its_database_once_there_is_space_again(left: int, tmp_path: Path) -> None:
    run_dir = tmp_path / "digits" / "run-1"
    run_dir.mkdir(parents=True)
    exporter = MlflowExporter()

    with full_disk(left), pytest.raises(RetryableExportError):
        exporter.start(run_info(run_dir, run_dir.name))
    exporter = MlflowExporter()
    exporter.start(run_info(run_dir, run_dir.name))
    exporter.export([step(1, 0, {"loss": 0.5})])
    exporter.shutdown(5.0, None)

    assert [row[:4] for row in answer_of("mlflow", run_dir)["scalars"]] == [["loss", "step", 0, 0.5]]
