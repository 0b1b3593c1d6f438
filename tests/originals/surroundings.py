"""A plug-in of pytest for the originals' tests: each has a folder of its own, writes to no server, and ends its run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_ml
from otel_ml.warn_once import forget_warnings


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "otel-ml-runs"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    forget_warnings()
    yield
    otel_ml.shutdown()
