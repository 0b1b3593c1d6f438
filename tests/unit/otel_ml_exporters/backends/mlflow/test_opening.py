"""Stores in a folder are made by one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.backends.mlflow import tracking
from otel_ml_exporters.errors import RetryableExportError


def test_who_finds_another_at_it_for_too_long_tries_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "_OPENING_TIMEOUT", 0.0)  # as shipped: half a minute
    lock = tmp_path / "runs" / "opening"

    too_long = pytest.raises(RetryableExportError, match="Another process has been opening")
    with tracking._one_at_a_time(lock), too_long, tracking._one_at_a_time(lock):
        pytest.fail("two are at it")
    with tracking._one_at_a_time(lock):
        pass
