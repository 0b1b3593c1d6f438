"""What the exporter `wandb` keeps beside a run is of use, or is none: it never keeps a run from being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml.exceptions import VersionError
from otel_ml_exporters.backends.wandb import WandbExporter
from otel_ml_exporters.records import RunInfo
from tests.contract.stream import run_info, step


@pytest.fixture
def run(tmp_path: Path) -> RunInfo:
    """Return an offline run with four rows, of an exporter that has left."""
    run = run_info(tmp_path / "runs" / "digits" / "run", "run")
    exporter = WandbExporter(mode="offline")
    exporter.start(run)
    exporter.export([step(seq, seq, {"loss": 1.0}) for seq in range(1, 5)])
    exporter.force_flush(20.0)
    exporter.shutdown(30.0, None)
    return run


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b'{"log": 5}'])
def test_a_place_in_the_run_that_a_power_cut_has_emptied_is_looked_up_in_its_log(run: RunInfo, content: bytes) -> None:
    (run.folder("wandb") / "last.json").write_bytes(content)

    exporter = WandbExporter(mode="offline")
    exporter.start(run)

    assert exporter.position() == 4
    exporter.shutdown(30.0, None)


def test_a_run_that_could_not_be_opened_is_let_go_for_the_next_try(run: RunInfo) -> None:
    memory = run.folder("wandb") / "last.json"
    before = memory.read_bytes()
    memory.write_text('{"form": 2}')
    with pytest.raises(VersionError, match="in version 2 of its form"):
        WandbExporter(mode="offline").start(run)
    memory.write_bytes(before)

    exporter = WandbExporter(mode="offline")
    exporter.start(run)

    assert exporter.position() == 4
    exporter.shutdown(30.0, None)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"online offline"])
def test_a_run_whose_mode_was_lost_goes_on_offline_where_its_logs_are(
    run: RunInfo, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    (run.folder("wandb") / "mode").write_bytes(content)

    exporter = WandbExporter()
    exporter.start(run)

    assert exporter.position() == 4
    assert "goes on offline" in (exporter.notice or "")
    assert (run.folder("wandb") / "mode").read_text() == "offline"
    exporter.shutdown(30.0, None)
