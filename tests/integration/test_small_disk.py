"""Real full and read-only disks: a small tmpfs in a mount namespace of its own, below each file the service keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import environment, finished
from tests.recorded_run import digits_records, write_run

NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--fork"]


def happened(folder: Path, kind: str, where: str, exporter: str) -> Any:
    """Run `small_disk.py` and return what it printed."""
    output = folder / "happened.json"
    command = [*NAMESPACES, sys.executable, "-m", "tests.integration.small_disk", kind, where, exporter]
    finished([*command, folder / "runs", output], environment(WANDB_MODE="offline"), folder)
    return json.loads(output.read_text())


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("where", "exporter", "acknowledges"),
    [
        (".", "tensorboard", False),
        (".service", "tensorboard", False),
        ("default/run-1", "tensorboard", True),
        ("default/run-1/tensorboard", "tensorboard", True),
        pytest.param("default", "tensorboard", True, marks=pytest.mark.chaos),
        pytest.param("default/run-1/state", "tensorboard", True, marks=pytest.mark.chaos),
        pytest.param("mlflow", "mlflow", True, marks=pytest.mark.chaos),
    ],
)
def test_after_a_full_disk_was_emptied_everything_is_there_once(
    tmp_path: Path, where: str, exporter: str, acknowledges: bool
) -> None:
    found = happened(tmp_path, "full", where, exporter)

    assert found["wrong"] == []
    assert found["lost"] == {}
    assert found["statuses"] == ["finished"]  # who is refused lives, however long that lasts
    assert (found["during"]["acknowledged"] == 40) == acknowledges
    if not acknowledges:
        assert all(
            refusal.startswith("503 Not stored: ") and "No space left" in refusal for refusal in found["refused"]
        )
        assert found["waits"] == ["1"]
    if where != "mlflow":  # MLflow's own client waits for longer than the disk is full
        assert any("No space left" in notice for notice in found["notices"])


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_rows_that_w_and_b_lost_to_a_full_disk_are_given_to_it_again(tmp_path: Path) -> None:
    found = happened(tmp_path, "full", "wandb", "wandb")

    assert (found["wrong"], found["lost"]) == ([], {})


@pytest.mark.timeout(240)
def test_a_run_that_begins_on_a_read_only_disk_is_there_once_it_can_be_written(tmp_path: Path) -> None:
    found = happened(tmp_path, "read-only", "default", "tensorboard")

    assert (found["wrong"], found["lost"]) == ([], {})
    assert found["during"]["acknowledged"] == 40
    assert any("Read-only file system" in notice for notice in found["notices"])


def test_a_service_whose_journal_cannot_be_written_says_so_and_does_not_start(tmp_path: Path) -> None:
    said = happened(tmp_path, "read-only", ".service", "tensorboard")["said"]

    assert "journal.db" in said
    assert "Read-only file system" in said
    assert "choose another OTEL_ML_DIR" in said


def test_a_run_on_a_read_only_disk_is_read_as_anywhere(tmp_path: Path) -> None:
    write_run(tmp_path / "backup", "01abc", digits_records(steps=3), exporters=[])
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = 'mount -t tmpfs none "$0" && cp -r "$1" "$0" && mount -o remount,ro "$0" && shift && exec "$@"'
    show = [sys.executable, "-m", "otel_ml_service", "show", "01abc", "loss", "--csv", "--dir", str(disk / "backup")]

    done = subprocess.run(
        [*NAMESPACES, "bash", "-c", mounted, str(disk), str(tmp_path / "backup"), *show],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split(",")[2] for line in done.stdout.splitlines()[1:]] == ["0", "1", "2"]
