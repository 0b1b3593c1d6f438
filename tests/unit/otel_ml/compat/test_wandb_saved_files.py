"""`wandb.save()` keeps files under the paths that W&B gives them, and what they are at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


def test_a_file_whose_name_looks_like_a_pattern_is_saved(captured: Capture, tmp_path: Path) -> None:
    path = tmp_path / "f[1].txt"
    path.write_text("x")

    assert wandb.save(str(path), glob=False) == [str(path)]
    assert f"{tmp_path.name}/f[1].txt" in events(captured, "artifact")


def test_what_save_returns_is_a_path_that_stays_right_in_another_folder(
    captured: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.txt").write_text("x")
    (tmp_path / "inner").mkdir()
    [found] = wandb.save("f.txt")
    monkeypatch.chdir("inner")

    assert Path(found).read_text() == "x"
    assert list(events(captured, "artifact")) == ["f.txt"]


def test_saved_files_keep_their_paths_below_the_base_path(captured: Capture, tmp_path: Path) -> None:
    for name in ("a/one/w.txt", "a/two/w.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)

    wandb.save("a/*/w.txt")
    wandb.save(b"a/one/w.txt", base_path="a")
    wandb.save(tmp_path / "a" / "two" / "*.txt")

    kept = {name: event.body for name, event in events(captured, "artifact").items()}
    assert kept == {"a/one/w.txt": b"a/one/w.txt", "a/two/w.txt": b"a/two/w.txt",
                    "one/w.txt": b"a/one/w.txt", "two/w.txt": b"a/two/w.txt"}  # fmt: skip


@pytest.mark.parametrize(("policy", "times"), [("live", 2), ("end", 2), ("now", 1)])
def test_a_saved_file_that_changes_is_recorded_again_at_the_end(
    captured: Capture, tmp_path: Path, policy: str, times: int
) -> None:
    for name in ("changes.txt", "stays.txt"):
        (tmp_path / name).write_text("before")
    run = wandb.init()
    run.save("*.txt", policy=policy)
    (tmp_path / "written").write_text("after the call")
    (tmp_path / "written").replace(tmp_path / "changes.txt")  # its content is read soon after the call
    run._last_words()

    kept = [(event.name, event.body) for event in captured.events if event.kind == "ml.artifact"]
    assert [body for name, body in kept if name == "stays.txt"] == [b"before"]
    assert [body for name, body in kept if name == "changes.txt"] == [b"before", b"after the call"][:times]


@pytest.mark.parametrize(
    ("wanted", "base", "said"),
    [
        ("*/f.txt", None, "ValueError: a pattern may not start with '*'"),
        ("../f.txt", None, "ValueError: a path may not walk above the base path"),
        ("a/f.txt", "b", "ValueError: a path may not walk above the base path"),
        ("s3://bucket/f.txt", None, "it is a cloud storage url"),
        ("a/*.txt", None, "a name with these characters wants glob=False"),
    ],
)
def test_what_cannot_be_saved_is_said_with_the_error_of_wandb(
    captured: Capture, wanted: str, base: str | None, said: str
) -> None:
    assert wandb.save(wanted, base_path=base) == []

    assert any(said in notice and "test_wandb_saved_files.py" in notice for notice in captured.notices), (
        captured.notices
    )
    assert events(captured, "artifact") == {}
