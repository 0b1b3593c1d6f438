"""A folder of runs that several users write to: what one of them planted, another one's job does not write to."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from otel_ml.wire import folder_ownership
from otel_ml.wire.folder_ownership import QUARANTINE, claim
from otel_ml.wire.rendezvous import run_folder
from otel_ml_exporters.backends.mlflow.tracking import open_run
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_service.live_runs import run_registry as book_module
from otel_ml_service.live_runs.run_registry import RunRegistry
from otel_ml_service.live_runs.run_settings import RunSettings
from otel_ml_service.storage.database import StorageError, private_folder
from otel_ml_service.telemetry import Telemetry
from tests.contract.stream import run_info
from tests.integration.worker_process import environment
from tests.strategies import writer
from tests.waiting import eventually

JOB = """
import otel_ml
with otel_ml.init("exp", id="planted", exporters="jsonl,tensorboard") as run:
    for step in range(3):
        otel_ml.log({"loss": float(step)}, step=step)
    otel_ml.log_text("note", "hello")
    otel_ml.log_image("picture", [[0, 255], [255, 0]])
"""
FILES = ("service.log", "metrics.jsonl", "spans.jsonl", "late.otlp")
FOLDERS = ("artifacts", "media", "tensorboard", QUARANTINE)


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Make a run's folder that everybody could write to for a while."""
    folder = tmp_path / "runs" / "exp" / "planted"
    folder.mkdir(parents=True)
    (folder / "state").mkdir()
    for each in (folder.parent, folder, folder / "state"):
        each.chmod(0o777)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "precious").write_text("the only copy")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def be_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this user owns belongs to another one from here on, and no file system says otherwise."""
    stranger = os.geteuid() + 1

    def no_probe(**_: object) -> None:
        raise OSError(errno.EACCES, "no probe")

    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    monkeypatch.setattr(folder_ownership.tempfile, "TemporaryFile", no_probe)


@pytest.mark.parametrize("how", ["links", "hard links", "pipes"])
def test_a_job_writes_to_nothing_that_was_planted_in_its_folder_and_has_all_its_values(
    planted: Path, victim: Path, tmp_path: Path, how: str
) -> None:
    for name in (*FILES, "state/run.db", "state/run.db-wal", "state/open"):
        match how:
            case "links":
                (planted / name).symlink_to(victim / "precious")
            case "hard links":
                (planted / name).hardlink_to(victim / "precious")
            case _:
                os.mkfifo(planted / name)
    for name in FOLDERS if how == "links" else ():
        (planted / name).symlink_to(victim)

    environ = environment(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)})
    subprocess.run([sys.executable, "-c", JOB], env=environ, check=True, timeout=100, cwd=tmp_path)

    assert contents(victim) == {"precious": "the only copy"}
    assert otel_ml.read(planted)["loss"] == ([0, 1, 2], [0.0, 1.0, 2.0])
    eventually(lambda: "were links or somebody else's" in (planted / "service.log").read_text())
    assert (planted / "media").is_dir()
    assert not any((planted / name).is_symlink() for name in (*FILES, *FOLDERS))
    for folder in (planted, planted.parent):
        assert not stat.S_IMODE(folder.stat().st_mode) & stat.S_IWOTH
    assert stat.S_IMODE((planted / "state").stat().st_mode) == 0o700


def test_of_a_folder_in_which_nothing_was_planted_nothing_is_said(tmp_path: Path) -> None:
    book = RunRegistry(tmp_path, RunSettings({}), Telemetry(), journal="j")

    run = book.of(writer(0))
    run.commit()
    book.put_away(run)

    assert list(run.outbox.notices) == []


def test_where_an_experiments_folder_is_somebody_elses_ones_own_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "team").mkdir()
    assert run_folder(tmp_path, "theirs", "a") == tmp_path / "theirs" / "a"
    (tmp_path / "theirs").chmod(0o777)
    be_somebody_else(monkeypatch)

    assert run_folder(tmp_path, "theirs", "a") == tmp_path / f"theirs-{os.getuid()}" / "a"
    assert run_folder(tmp_path, "team", "a") == tmp_path / "team" / "a"  # of who owns the folder of all runs
    assert run_folder(tmp_path, "new", "a") == tmp_path / "new" / "a"


def test_a_runs_folder_of_somebody_else_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exp" / "a" / "state").mkdir(parents=True)
    (tmp_path / "exp" / "link").symlink_to(tmp_path / "exp" / "a")
    (tmp_path / "state").symlink_to(tmp_path / "exp")

    with pytest.raises(PermissionError, match="is a link, and is not written to"):
        claim(tmp_path / "exp" / "link")
    with pytest.raises(StorageError, match="is a link"):
        private_folder(tmp_path / "state")
    be_somebody_else(monkeypatch)
    with pytest.raises(PermissionError, match="belongs to user"):
        claim(tmp_path / "exp" / "a")
    with pytest.raises(StorageError, match="belongs to user"):
        private_folder(tmp_path / "exp" / "a" / "state")


def test_on_a_file_system_that_takes_everybody_for_somebody_else_ones_own_folder_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path / "exp" / "a")
    (tmp_path / "exp" / "a" / "metrics.jsonl").write_text("")
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)

    claim(tmp_path / "exp" / "a")

    assert not (tmp_path / "exp" / "a" / QUARANTINE).exists()


def test_root_in_a_container_goes_on_with_the_run_of_the_user_whose_folder_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_folder(tmp_path / "runs" / "exp" / "a" / "state")
    if os.getuid() == 0:
        for path in (tmp_path / "runs", *(tmp_path / "runs").rglob("*")):
            os.chown(path, 12345, 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    folder = run_folder(tmp_path / "runs", "exp", "a")

    assert folder == tmp_path / "runs" / "exp" / "a"
    claim(folder)
    assert not (folder / QUARANTINE).exists()
    assert private_folder(folder / "state") == folder / "state"


def test_what_a_job_has_linked_into_its_artifacts_stays_there(tmp_path: Path) -> None:
    folder = tmp_path / "exp" / "a"
    (folder / "artifacts" / "model").mkdir(parents=True)
    (tmp_path / "checkpoint").write_text("weights")
    (folder / "artifacts" / "model" / "checkpoint").hardlink_to(tmp_path / "checkpoint")

    claim(folder)

    assert not (folder / QUARANTINE).exists()


def test_a_run_that_somebody_else_has_begun_under_the_same_id_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "evil" / "exp" / "state"
    theirs.mkdir(parents=True)
    (theirs / "run.db").touch()
    (theirs / "open").write_text("exp")
    monkeypatch.setattr(book_module, "is_ours", lambda folder: folder.parent.name != "evil")
    book = RunRegistry(tmp_path, RunSettings({}), Telemetry(), journal="j")

    book.reopen()
    assert list(book) == []
    run = book.of(writer(0, experiment_name="digits"))

    assert run.folder == tmp_path / "digits" / "exp"
    book.put_away(run)


@pytest.mark.parametrize("how", ["a link", "anybody may write to it", "another name"])
def test_mlflow_does_not_write_to_a_database_that_somebody_else_planted_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    precious = tmp_path / "precious"
    precious.write_text("the only copy")
    database = tmp_path / "runs" / "mlflow.db"
    (tmp_path / "runs" / "exp" / "a").mkdir(parents=True)
    match how:
        case "a link":
            database.symlink_to(precious)
        case "another name":
            database.hardlink_to(precious)
        case _:
            database.write_text("")
            database.chmod(0o666)
    if how != "another name":
        be_somebody_else(monkeypatch)

    with pytest.raises(RetryableExportError, match=rf"mlflow\.db .*{how}.* Set MLFLOW_TRACKING_URI"):
        open_run(run_info(tmp_path / "runs" / "exp" / "a", "a"), f"sqlite:///{database}")

    assert precious.read_text() == "the only copy"


def test_mlflows_database_may_be_written_to_by_the_group_where_the_umask_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = run_info(tmp_path / "runs" / "exp" / "a", "a")
    before = os.umask(0o002)
    try:
        open_run(run, f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "runs" / "mlflow.db").stat().st_mode) == 0o664


def test_what_a_run_leaves_follows_the_umask_but_for_secrets_and_is_never_for_all_to_write(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)})
    modes = {}
    for umask in (0o000, 0o002, 0o022, 0o077):
        job = JOB.replace('"planted"', f'"{umask:03o}"')
        base = tmp_path / f"runs-{umask:03o}"
        program = f"import os; os.umask({umask})\n{job}"
        environ["OTEL_ML_DIR"] = str(base)
        subprocess.run([sys.executable, "-c", program], env=environ, check=True, timeout=100, cwd=tmp_path)
        run = base / "exp" / f"{umask:03o}"
        names = (run.parent, run, run / "metrics.jsonl", run / "media", run / "service.log")
        modes[umask] = [stat.S_IMODE(path.stat().st_mode) for path in names]

    assert modes == {
        0o000: [0o775, 0o775, 0o664, 0o775, 0o600],
        0o002: [0o775, 0o775, 0o664, 0o775, 0o600],
        0o022: [0o755, 0o755, 0o644, 0o755, 0o600],
        0o077: [0o700, 0o700, 0o600, 0o700, 0o600],
    }
