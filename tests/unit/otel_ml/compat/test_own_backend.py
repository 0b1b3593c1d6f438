"""Where the run of another tracker's script goes is decided by the job, and not by a run that goes on."""

from __future__ import annotations

import pytest

import otel_ml
from otel_ml.compat.tracking.own_backend import with_own_backend


@pytest.mark.parametrize(("of_the_job", "chosen"), [("", True), ("jsonl", False)])
def test_a_run_that_goes_on_decides_nothing_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, of_the_job: str, chosen: bool
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", of_the_job)
    otel_ml.init(exporters="jsonl")
    try:
        found = with_own_backend("wandb")
    finally:
        otel_ml.shutdown()

    assert (found is not None and "wandb" in found) == chosen
