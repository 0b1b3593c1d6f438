from __future__ import annotations

import errno
import hashlib
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import kept_folder
from otel_ml_exporters.records import Artifact
from otel_ml_service.aggregation.output import NamedFile
from otel_ml_service.live_runs.artifact_store import found_file
from otel_ml_service.live_runs.artifact_thread import ArtifactThread
from tests.waiting import eventually

CONTENT = b"weights" * 1000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "step 10.pt"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def artifact(path: Path, *, seq: int = 1, name: str = "model", path_in: str = "model.pt", uri: str = "") -> Artifact:
    digest = hashlib.sha256(CONTENT).hexdigest()
    return Artifact(seq, 0.0, name, "model", path_in, None, uri or str(path), len(CONTENT), digest)


def kept(record: Artifact, folder: Path) -> Path | None:
    return found_file(NamedFile(record), folder).local


@pytest.mark.parametrize("scheme", ["path", "uri"])
def test_a_file_the_service_sees_is_kept_in_the_runs_folder_when_the_job_deletes_it(
    tmp_path: Path, checkpoint: Path, scheme: str
) -> None:
    local = kept(artifact(checkpoint, uri=checkpoint.as_uri() if scheme == "uri" else ""), tmp_path / "run")

    assert local == tmp_path / "run" / "artifacts" / "model" / "model.pt"
    assert local.samefile(checkpoint)
    checkpoint.unlink()
    assert local.read_bytes() == CONTENT


def test_where_no_link_can_be_made_the_file_is_copied(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_disk(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)

    local = kept(artifact(checkpoint), tmp_path / "run")

    assert local is not None
    assert not local.samefile(checkpoint)
    assert local.read_bytes() == CONTENT
    assert [path.name for path in local.parent.iterdir()] == ["model.pt"]


@pytest.mark.parametrize(
    ("name", "path_in"), [("../../evil", "model.pt"), ("model", "../../../evil"), ("/evil", "/evil"), ("..", "..")]
)
def test_no_name_leaves_the_runs_folder(tmp_path: Path, checkpoint: Path, name: str, path_in: str) -> None:
    local = kept(artifact(checkpoint, name=name, path_in=path_in), tmp_path / "run")

    assert local is not None
    assert (tmp_path / "run" / "artifacts").resolve() in local.resolve().parents


def test_the_same_file_again_is_the_same_and_another_version_has_its_own_place(
    tmp_path: Path, checkpoint: Path
) -> None:
    first = kept(artifact(checkpoint), tmp_path / "run")
    again = kept(artifact(checkpoint, seq=2), tmp_path / "run")
    assert first is not None
    first.unlink()
    first.write_bytes(b"another")

    other = kept(artifact(checkpoint, seq=3), tmp_path / "run")

    assert again == first
    assert other == tmp_path / "run" / "artifacts" / "model.3" / "model.pt"


@pytest.mark.parametrize("uri", ["s3://bucket/model.pt", "/nowhere/model.pt", "relative.pt"])
def test_what_the_service_does_not_see_is_a_reference(tmp_path: Path, checkpoint: Path, uri: str) -> None:
    assert kept(artifact(checkpoint, uri=uri), tmp_path / "run") is None


def test_a_file_that_changed_meanwhile_is_a_reference(tmp_path: Path, checkpoint: Path) -> None:
    checkpoint.write_bytes(b"Weights" * 1000)

    assert kept(artifact(checkpoint), tmp_path / "run") is None
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_written_leaves_the_file_where_it_is(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "run").write_text("not a folder")

    assert kept(artifact(checkpoint), tmp_path / "run") == checkpoint


def test_what_a_killed_service_left_beside_a_file_is_removed(tmp_path: Path, checkpoint: Path) -> None:
    leftover = tmp_path / "run" / "artifacts" / "model" / ".artifact-half"
    leftover.mkdir(parents=True)
    (leftover / "file").write_bytes(CONTENT[:100])

    local = kept(artifact(checkpoint), tmp_path / "run")

    assert local is not None
    assert [path.name for path in local.parent.iterdir()] == ["model.pt"]


def test_a_file_that_was_kept_for_us_and_written_to_since_is_a_reference(tmp_path: Path) -> None:
    kept_file = kept_folder(tmp_path / "run") / ("a" * 32)
    kept_file.parent.mkdir(parents=True)
    kept_file.write_bytes(CONTENT)
    named = replace(artifact(kept_file), sha256=None)

    found = found_file(NamedFile(named, kept_file.name, kept_file.stat().st_mtime_ns - 1), tmp_path / "run")

    assert (found.local, found.sha256) == (None, None)


def files_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "otel-ml-files"]


def test_the_thread_that_looks_for_files_ends_with_its_run(tmp_path: Path, checkpoint: Path) -> None:
    looking = ArtifactThread(tmp_path / "run")
    looking.look_for([NamedFile(artifact(checkpoint))])
    assert len(eventually(lambda: [*looking.take()])) == 1

    looking.close()

    assert eventually(lambda: not files_threads())


def test_where_the_host_has_no_thread_left_files_are_looked_for_as_soon_as_there_is_one(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    looking = ArtifactThread(tmp_path / "run")
    with monkeypatch.context() as host:
        host.setattr(threading.Thread, "start", no_thread)
        looking.look_for([NamedFile(artifact(checkpoint))])
        assert [*looking.take()] == []

    assert len(eventually(lambda: [*looking.take()])) == 1
    looking.close()
