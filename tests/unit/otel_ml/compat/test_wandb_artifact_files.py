"""What an artifact of this run has, as a script asks it: its one file, a file by its name, what was added."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture
from tests.unit.otel_ml.compat.recorded import events


@pytest.fixture
def artifact(tmp_path: Path) -> wandb.Artifact:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "a.txt").write_text("a")
    (tmp_path / "folder" / "inner" / "b.txt").write_text("bb")
    made = wandb.Artifact("data", type="dataset")
    made.add_dir(tmp_path / "folder", name="in")
    return made


def test_the_one_file_of_an_artifact_is_found_by_the_name_it_was_logged_under(captured_wandb: Capture) -> None:
    Path("clean.csv").write_text("a,b")
    made = wandb.Artifact("clean", type="data")
    entry = made.add_file("clean.csv", name="sub/sample.csv")
    wandb.log_artifact(made)

    assert entry is not None
    found = Path(wandb.use_artifact("clean:latest").file())
    assert (found.as_posix(), found.read_text()) == ("artifacts/clean/sub/sample.csv", "a,b")
    assert Path(wandb.use_artifact("clean:latest").file("elsewhere")).read_text() == "a,b"
    assert (entry.path, entry.size, entry.local_path) == ("sub/sample.csv", 3, "clean.csv")
    assert captured_wandb.notices == []


def test_a_file_is_got_by_its_name_inside_of_the_artifact(artifact: wandb.Artifact) -> None:
    entry = artifact.get_entry("in/inner/b.txt")

    assert Path(entry.download("here")) == Path("here/in/inner/b.txt")
    assert Path("here/in/inner/b.txt").read_text() == "bb"
    assert artifact.get_path("in/a.txt").path == "in/a.txt"
    assert artifact.get_added_local_path_name(entry.local_path) == "in/inner/b.txt"
    assert artifact.get_added_local_path_name("none") is None
    with pytest.raises(KeyError, match=r"Path not contained in artifact: in/c\.txt"):
        artifact.get_entry("in/c.txt")


def test_several_files_are_no_one_file_as_there(artifact: wandb.Artifact) -> None:
    with pytest.raises(ValueError, match=r"'data' has 2 files.*download\(\)"):
        artifact.file()
    with pytest.raises(ValueError, match="'empty' has 0 files"):
        wandb.Artifact("empty", type="t").file()


def test_what_was_added_is_got_by_its_name(artifact: wandb.Artifact) -> None:
    table = wandb.Table(columns=["a"], data=[[1]])
    artifact.add(table, "scores")

    assert artifact.get("scores") is table
    assert artifact.get("none") is None


def test_what_is_removed_is_not_logged(captured_wandb: Capture, artifact: wandb.Artifact) -> None:
    artifact.add(wandb.Table(columns=["a"], data=[[1]]), "scores")
    artifact.remove("in/inner")
    artifact.remove("scores")
    with pytest.raises(FileNotFoundError, match="No such file or directory: in/inner"):
        artifact.remove("in/inner")
    artifact.add_file(artifact.get_entry("in/a.txt").local_path, name="again.txt")
    artifact.remove(artifact.get_entry("again.txt"))
    wandb.log_artifact(artifact)

    kept = [event.attributes["ml.artifact.path_in"] for event in captured_wandb.events if event.kind == "ml.artifact"]
    assert (artifact.file_count, kept) == (1, ["in/a.txt"])
    assert events(captured_wandb, "table") == {}


def test_the_manifest_has_what_was_added_and_the_artifact_waits_for_its_version(artifact: wandb.Artifact) -> None:
    entries = artifact.manifest.entries

    assert list(entries) == ["in/a.txt", "in/inner/b.txt"]
    assert (entries["in/inner/b.txt"].size, artifact.state) == (2, "PENDING")


@pytest.mark.parametrize("call", ["log_artifact", "log_model"])
def test_a_folder_is_logged_with_its_files_under_its_name(captured_wandb: Capture, tmp_path: Path, call: str) -> None:
    (tmp_path / "weights" / "shards").mkdir(parents=True)
    (tmp_path / "weights" / "config.json").write_text("{}")
    (tmp_path / "weights" / "shards" / "0.bin").write_bytes(b"0")
    run = wandb.init()

    logged = getattr(run, call)(str(tmp_path / "weights"))

    assert (logged.name, sorted(logged.manifest.entries)) == (f"run-{run.id}-weights", ["config.json", "shards/0.bin"])
    kept = [event for event in captured_wandb.events if event.kind == "ml.artifact"]
    assert {event.attributes["ml.artifact.path_in"] for event in kept} == {"config.json", "shards/0.bin"}
    assert captured_wandb.notices == []


def test_an_address_is_logged_as_the_address(captured_wandb: Capture) -> None:
    run = wandb.init()

    logged = run.log_artifact("s3://bucket/weights", name="weights", type="model")

    said = [event.body for event in captured_wandb.events if event.kind == "ml.params"]
    assert said == [{"artifacts": {"weights": {"references": ["s3://bucket/weights"]}}}]
    assert (logged.name, captured_wandb.notices) == ("weights", [])


def test_copies_of_an_artifact_that_is_never_logged_are_removed_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "one.txt").write_text("content")
    artifact = wandb.Artifact("never", "data")
    artifact.add_file(tmp_path / "one.txt")
    assert [*tmp_path.glob("otel-ml-*/*")]

    del artifact

    assert [*tmp_path.glob("otel-ml-*")] == []


@pytest.mark.parametrize("later", ["rewritten", "removed"])
def test_a_file_is_got_back_as_it_was_added(captured_wandb: Capture, later: str) -> None:
    weights = Path("weights.txt")
    weights.write_text("as added")
    made = wandb.Artifact("net", type="model")
    made.add_file("weights.txt")
    if later == "removed":
        weights.unlink()
    else:
        weights.write_text("of the next epoch")
    wandb.log_artifact(made)

    used = wandb.use_artifact("net:latest")
    assert (used.size, used.file_count, used.get_added_local_path_name("weights.txt")) == (8, 1, "weights.txt")
    assert (Path(used.download("all")) / "weights.txt").read_text() == "as added"
    assert Path(used.file("one")).read_text() == "as added"
    assert Path(used.get_entry("weights.txt").download("entry")).read_text() == "as added"


def test_a_folder_is_got_back_as_it_was_added(captured_wandb: Capture, artifact: wandb.Artifact) -> None:
    Path("folder/a.txt").write_text("rewritten")
    Path("folder/inner/b.txt").unlink()
    wandb.log_artifact(artifact)

    folder = Path(artifact.download("all"))
    assert {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.txt")} == {
        "in/a.txt": "a",
        "in/inner/b.txt": "bb",
    }
