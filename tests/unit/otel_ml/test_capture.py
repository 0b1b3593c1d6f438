"""What a run was started from belongs to that run, however long git takes; packages are told by their headers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from otel_ml._internal.events.code_capture import Capture, captured
from otel_ml._internal.events.event_queue import EVENTS


def test_what_is_found_after_the_run_has_ended_is_not_put_into_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_git = tmp_path / "git"
    has_ended = tmp_path / "has ended"
    slow_git.write_text(f"#!/bin/sh\nwhile [ ! -e '{has_ended}' ]; do sleep 0.01; done\nexit 1\n")
    slow_git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    EVENTS.forget()

    capture = Capture("trainer", EVENTS)
    capture.start()
    capture.end(0.0)
    has_ended.touch()
    capture.end(30.0)

    assert list(EVENTS.take()) == []


def test_packages_are_told_by_their_headers_whatever_their_descriptions_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in {
        "new-2.0.dist-info/METADATA": "Name: New.Name\nVersion: 2.0\n\nName: wrong\nVersion: 9\n",
        "old-1.0.egg-info/PKG-INFO": "Version: 1.0\nName: old\nDescription: it says\n        Name: wrong\n",
        "older-0.9.egg-info": "Name: older\nVersion: 0.9\n",
        "broken-1.0.dist-info/METADATA": "Metadata-Version: 2.1\n\nName: broken\nVersion: 1.0\n",
        "empty-1.0.dist-info/RECORD": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(file)
    (tmp_path / "latin-1.0.dist-info").mkdir()
    (tmp_path / "latin-1.0.dist-info" / "METADATA").write_bytes(
        "Name: latin\nVersion: 1.0\nAuthor: Jürgen\n".encode("latin-1")
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    *_, packages = captured("trainer")

    assert packages.body == b"New.Name==2.0\nold==1.0\nolder==0.9\n"


def test_a_working_directory_that_was_removed_takes_nothing_else_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    params, *_, packages = captured("trainer")

    assert params.body["otel_ml"]["working_directory"] == "(removed)"
    assert b"pytest==" in packages.body


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository without a commit, which is the working directory, and no configuration but its own."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    return tmp_path


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)


@pytest.mark.parametrize(
    ("before", "after", "configuration"),
    [
        (b"one\ntwo\nthree\n\n", b"ONE\ntwo\nthree\n\n", {}),
        (b"one\ntwo\n \n\t\n", b"ONE\ntwo\n \n\t\n", {}),
        (b"one\ntwo\n\n", b"ONE\ntwo\n\n", {"diff.suppressBlankEmpty": "true"}),
        (b"one\n", b"one\n\n\n", {}),
        (b"one\n", b"two", {}),
        (b"one\r\ntwo\r\n\r\n", b"ONE\r\ntwo\r\n\r\n", {}),
        ("Jürgen\none\n".encode("latin-1"), "Jürgen\nONE\n".encode("latin-1"), {}),
        (b"one\ntwo\n", b"ONE\ntwo\n", {"diff.noprefix": "true"}),
        (b"one\ntwo\nthree\n", b"one\nTWO\nthree\n", {"diff.context": "0"}),
        (b"one\ntwo\n", b"ONE\ntwo\n", {"diff.letters.textconv": "tr a-z b-z <"}),
    ],
)
def test_the_diff_is_a_patch_that_makes_what_ran_of_what_was_committed(
    repository: Path, before: bytes, after: bytes, configuration: Mapping[str, str]
) -> None:
    train = repository / "train.txt"
    train.write_bytes(before)
    (repository / ".gitattributes").write_text("train.txt diff=letters\n")
    git("add", ".")
    git("-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "-m", "first")
    for name, value in configuration.items():
        git("config", name, value)
    train.write_bytes(after)

    _, diff, _ = captured("trainer")

    patch = repository / "git-diff.patch"
    patch.write_bytes(diff.body)
    git("checkout", "--quiet", "--", "train.txt")
    git("apply", patch.name)
    assert train.read_bytes() == after


def test_a_program_without_arguments_of_its_own_is_captured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])  # as where Python is embedded in another program

    params, *_ = captured("trainer")

    assert isinstance(params.body, dict)
    assert params.body["otel_ml"]["arguments"] == []
