"""A journal on a network file system is said, and one on a disk of its own is not there: `docs/reliability.md`."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_service.config import ServiceConfig
from otel_ml_service.storage import filesystem
from otel_ml_service.storage.filesystem import network_file_system
from tests.e2e.jobs import ROOT
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter
from tests.waiting import eventually

PAGE = ROOT / "docs" / "reliability.md"


@pytest.mark.parametrize(
    ("mounts", "kind"),
    [
        ("disk / ext4 rw 0 0", None),
        ("disk / ext4 rw 0 0\nserver:/runs /runs nfs4 rw 0 0", "nfs4"),
        ("disk / ext4 rw 0 0\nserver:/runs /runs nfs4 rw 0 0\ndisk /runs/mine xfs rw 0 0", None),
        ("disk / ext4 rw 0 0\nserver:/runs /run nfs4 rw 0 0", None),
        ("server:/ / lustre rw 0 0\ntmpfs /runs tmpfs rw 0 0", None),
        ("disk / ext4 rw 0 0\nx /runs ext4 rw 0 0\nhost:/x /runs cifs rw 0 0", "cifs"),
        ("", None),
    ],
)
def test_the_file_system_of_the_nearest_mount_counts(mounts: str, kind: str | None) -> None:
    assert network_file_system(Path("/runs/mine/today"), mounts) == kind


def test_a_folder_whose_name_has_a_space_is_found() -> None:
    assert network_file_system(Path("/my runs"), "x / ext4 rw 0 0\ny /my\\040runs nfs rw 0 0") == "nfs"


def test_a_journal_on_a_network_file_system_is_said_with_what_to_do(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"disk / ext4 rw 0 0\nserver:/runs {bench.folder} nfs4 rw 0 0\n")
    monkeypatch.setattr(filesystem, "_MOUNTS", table)  # nobody can mount one here

    bench.service()

    assert "The journal is on a network file system (nfs4)" in caplog.text
    assert "OTEL_ML_JOURNAL_DIR=FOLDER" in caplog.text


def test_the_journal_may_lie_on_a_disk_of_its_own(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [line] = [found for found in PAGE.read_text().splitlines() if found.startswith("export OTEL_ML_JOURNAL_DIR=")]
    local = tmp_path / "local"
    name, _, folder = line.removeprefix("export ").partition("=")
    config = ServiceConfig.load(directory=bench.folder, environ={name: folder.replace("/var/tmp/otel-ml", str(local))})
    service = bench.service(journal_dir=config.journal_dir, exporters={"jsonl": {}})
    sender = bench.sender(service)

    assert sender.send("metrics", FakeWriter().step(0, {"loss": 1.0})).status == 200
    eventually(lambda: sender.run())

    assert {path.name for path in local.rglob("journal*")} >= {"journal.db", "journal-1.log"}
    assert list(bench.folder.rglob("journal*")) == []
    assert "network file system" not in caplog.text
