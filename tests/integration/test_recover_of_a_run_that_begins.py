"""A run that has nothing in it while it is recovered: until a process records, or since somebody removed it."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.stored_runs.recover import recover
from otel_ml_service.stored_runs.unfinished import Unfinished, unfinished
from tests.otlp import FakeWriter


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unfinished:
    """Return a run whose service was killed before anybody was heard."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    state = tmp_path / "runs" / "digits" / "01begins" / "state"
    state.mkdir(parents=True, mode=0o700)
    (state / "open").write_text("01begins")
    (state.parent / "metrics.jsonl").touch()
    [found] = unfinished(tmp_path / "runs")
    return found


def record(run_id: str) -> None:
    """Send the first step of a process, as it does that has found the service."""
    service = rendezvous_of(run_id).read_service()
    assert service is not None
    writer = FakeWriter(experiment=run_id, extra={"ml.experiment.name": "digits"})
    headers = {"content-type": "application/x-protobuf", "authorization": f"Bearer {service.token}"}
    body = writer.step(0, {"loss": 1.0}).SerializeToString()
    request = urllib.request.Request(f"{service.endpoint}/v1/metrics", body, headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30):
        pass


def test_a_process_that_records_as_the_run_is_found_to_be_empty_leaves_it_unfinished(
    left: Unfinished, tmp_path: Path
) -> None:
    looks: list[Mapping[str, Any]] = []

    def look(account: Mapping[str, Any]) -> None:
        looks.append(account)
        if len(looks) == 5:  # the last one: nothing was found so often
            record(left.id)

    done = recover(left, 60.0, look)

    assert len(looks) == 5
    assert not done.is_done
    assert [run.id for run in unfinished(tmp_path / "runs")] == ["01begins"]


def test_a_run_that_was_removed_since_it_was_listed_is_not_made_again(left: Unfinished) -> None:
    shutil.rmtree(left.folder.path)

    done = recover(left, 60.0, lambda _: None)

    assert done.is_done
    assert not left.folder.path.exists()
    assert not left.rendezvous.folder.exists()
