"""No name that arrives becomes a path outside of the run's folder, and none stops the service."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import run_folder
from otel_ml_exporters import Artifact
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.aggregation.output import NamedFile
from otel_ml_service.live_runs.artifact_store import found_file
from otel_ml_service.stored_runs.follow_jsonl import Follower, UnreadableLineError
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter
from tests.waiting import eventually

NAMES = [
    "../../evil",
    "/etc/passwd",
    "..",
    ".",
    "a/../../../b",
    "nul\x00inside",
    "C:\\Windows\\evil",
    "..\\..\\evil",
    "\u2024\u2024/\u2025/\uff0e\uff0e\u2215evil",  # dots and slashes of other scripts
    "\u202egnp.exe",
    "line\nbreak\r\n\x1b[31m",
    "x" * 3000,
    "a/" * 1500 + "b",
    "ä/" * 500,
    "~/.ssh/authorized_keys",
    "-rf",
    "con",
    "\ud800",
]


def short(name: str) -> str:
    return ascii(name)[:24]


def everything_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_dir()]


@pytest.mark.parametrize("name", NAMES[:-1], ids=short)
def test_whatever_an_artifact_is_called_it_lies_in_its_runs_folder_and_the_service_goes_on(
    bench: Bench, recording: RecordingExporter, name: str
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()

    answer = sender.send(
        "logs", writer.event("ml.artifact", b"content", {"ml.name": name, "ml.artifact.path_in": name})
    )
    assert answer.status == 200
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    [artifact] = [record for record in recording.records if isinstance(record, Artifact)]
    assert artifact.local is not None
    assert artifact.local.read_bytes() == b"content"
    assert artifact.local.resolve().is_relative_to((bench.folder / "default" / "run-1" / "artifacts").resolve())
    assert not {"..", "."} & set(artifact.path_in.split("/"))
    assert artifact.path_in.isprintable()
    assert all(path.is_relative_to(bench.folder) for path in everything_in(bench.folder.parent))


@pytest.mark.parametrize("name", NAMES[:-1], ids=short)
def test_whatever_an_experiment_a_run_or_a_role_is_called_its_folder_is_two_below_the_one_of_all_runs(
    bench: Bench, name: str
) -> None:
    sender = bench.sender(bench.service())
    extra = {"ml.experiment.name": name, "ml.run.name": name}
    writer = FakeWriter(experiment=name, role=name, extra=extra)

    assert sender.send("metrics", writer.step(1, {name[:200]: 1.0})).status == 200
    eventually(lambda: len(bench.services[0].runs()) == 1)

    databases = list(bench.folder.parent.rglob("run.db"))
    assert [path.relative_to(bench.folder).parts[2:] for path in databases] == [("state", "run.db")]


@pytest.mark.parametrize("name", NAMES, ids=short)
def test_a_runs_folder_is_where_the_folder_of_all_runs_is(name: str, tmp_path: Path) -> None:
    found = run_folder(tmp_path, name, name)

    assert found.parent.parent == tmp_path
    assert found.resolve() == found
    found.mkdir(parents=True)


def test_a_link_planted_in_the_runs_folder_is_not_followed(
    bench: Bench, recording: RecordingExporter, tmp_path: Path
) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    outside = tmp_path / "outside"
    outside.mkdir()
    artifacts = bench.folder / "default" / "run-1" / "artifacts"
    artifacts.mkdir(parents=True)
    (artifacts / "model").symlink_to(outside)
    writer = FakeWriter()

    sender.send("logs", writer.event("ml.artifact", b"content", {"ml.name": "model", "ml.artifact.path_in": "a/b.pt"}))
    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    [artifact] = [record for record in recording.records if isinstance(record, Artifact)]
    assert list(outside.iterdir()) == []
    assert artifact.local is not None
    assert artifact.local.resolve().is_relative_to(artifacts.resolve())


def test_a_file_and_a_folder_of_one_name_do_not_stop_the_service(bench: Bench, recording: RecordingExporter) -> None:
    sender = bench.sender(bench.service({"recording": lambda: recording}))
    writer = FakeWriter()
    for path_in in ("a", "a/b", "a/b/c", "a"):
        attributes = {"ml.name": "model", "ml.artifact.path_in": path_in}
        sender.send("logs", writer.event("ml.artifact", path_in.encode(), attributes))

    sender.send("metrics", writer.step(1, {"loss": 1.0}))
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)

    contents = [
        record.local.read_bytes() for record in recording.records if isinstance(record, Artifact) and record.local
    ]
    assert contents == [b"a", b"a/b", b"a/b/c", b"a"]


# A sender names a file of this machine


def named(file: Path, sha256: str | None, size: int | None = None) -> Artifact:
    return Artifact(1, 0.0, "a", "file", "f", None, file.as_uri(), size or file.stat().st_size, sha256)


def test_a_file_of_ours_is_not_published_to_whoever_knows_its_name_and_size(tmp_path: Path) -> None:
    secret = tmp_path / "id_ed25519"
    secret.write_bytes(b"private")

    found = found_file(NamedFile(named(secret, None)), tmp_path / "run")

    assert found.local is None
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kept", ["../../id_ed25519", "id_ed25519", "0" * 31, "/etc/passwd"])
def test_only_what_a_worker_of_this_host_kept_needs_no_checksum(tmp_path: Path, kept: str) -> None:
    (tmp_path / "run" / "state" / "kept").mkdir(parents=True)
    secret = tmp_path / "run" / "id_ed25519"
    secret.write_bytes(b"private")
    modified_ns = secret.stat().st_mtime_ns

    found = found_file(NamedFile(named(secret, None), kept, modified_ns), tmp_path / "run")

    assert (found.local, found.sha256) == (None, None)


def test_of_a_link_the_content_is_kept_not_the_link(tmp_path: Path) -> None:
    content = tmp_path / "blob"
    content.write_bytes(b"weights")
    latest = tmp_path / "latest.pt"
    latest.symlink_to(content)

    found = found_file(NamedFile(named(latest, hashlib.sha256(b"weights").hexdigest())), tmp_path / "run")
    content.unlink()

    assert found.local is not None
    assert not found.local.is_symlink()
    assert found.local.read_bytes() == b"weights"


# A recorded run that somebody else made


def test_a_run_that_names_files_outside_of_its_folder_is_not_read_from_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"private")
    run = tmp_path / "run"
    run.mkdir()
    artifact = {
        "seq": 1, "type": "artifact", "time": 0.0, "name": "a", "artifact_type": "file", "path_in": "f",
        "local": str(secret), "uri": "", "size": 7, "sha256": None, "step": None, "aliases": [],
    }  # fmt: skip
    image = {"seq": 2, "type": "image", "time": 0.0, "name": "i", "axis": "step", "step": 1, "caption": None}
    image |= {"width": 1, "height": 1, "path": "../secret.png"}
    (run / "metrics.jsonl").write_text(json.dumps(artifact) + "\n")

    [record] = Follower(run / "metrics.jsonl").new_records()
    (run / "metrics.jsonl").write_text(json.dumps(image) + "\n")
    with pytest.raises(UnreadableLineError, match="not in the run's folder"):
        Follower(run / "metrics.jsonl").new_records()

    assert isinstance(record, Artifact)
    assert record.local is None
