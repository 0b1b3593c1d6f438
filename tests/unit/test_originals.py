"""`tests.originals.run`: the figures of an original's suite are what its tests said, and nothing else."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.originals import run as program
from tests.originals.figures import kept
from tests.originals.suites import SUITES, Suite

SUITE = Suite(
    name="loud",
    original="Loud",
    source="example.org/loud",
    checkout="loud",
    tests=["tests/test_loud.py"],
    more=["tests/conftest.py"],
    names={"loud.speech": "json"},
    apart={"*::test_of_a_server": "asks a server"},
)

TESTS = """
import os, pytest
from loud.speech import loads

def test_right(number):
    assert loads("1") == number
    assert os.environ["OTEL_ML_DIR"]

@pytest.mark.parametrize("text", ["1", "x"])
def test_each(text):
    assert loads(text) == 1

def test_of_a_server():
    raise OSError

def test_of_a_file():
    raise OSError(__file__)

@pytest.mark.skip
def test_skipped():
    raise OSError

class TestOfOneThing:
    def test_inside(self):
        assert loads("3") == 3
"""


def git(folder: Path, *words: str) -> str:
    as_somebody = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(
        [*as_somebody, "-C", folder, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a checkout of the original."""
    tests = tmp_path / "loud" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_loud.py").write_text(TESTS)
    (tests / "conftest.py").write_text("import pytest\n\n@pytest.fixture\ndef number(): return 1\n")
    git(tmp_path / "loud", "init", "-q")
    git(tmp_path / "loud", "add", ".")
    git(tmp_path / "loud", "commit", "-qm", "all")
    return tmp_path


def test_what_passed_and_what_failed_is_counted_and_named_without_what_is_apart_or_skipped(folder: Path) -> None:
    figures = program.run(SUITE, folder)

    assert (figures.passed, figures.run) == (3, 5)
    assert sorted(figures.failed) == ["test_loud::test_each[x]", "test_loud::test_of_a_file"]
    assert figures.failed["test_loud::test_of_a_file"] == "OSError: tests/test_loud.py", "no folder of this machine"
    assert "JSONDecodeError" in figures.failed["test_loud::test_each[x]"]
    assert figures.commit == git(folder / "loud", "rev-parse", "HEAD")
    assert (figures.translated, figures.left_out) == ((), [])


def test_a_suite_may_be_one_class_of_a_file(folder: Path) -> None:
    figures = program.run(replace(SUITE, within="TestOfOneThing"), folder)

    assert (figures.passed, figures.run) == (1, 1)


def test_a_bare_repository_is_as_good(folder: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--bare", folder / "loud", folder / "bare" / "loud"], check=True)

    assert program.run(SUITE, folder / "bare") == program.run(SUITE, folder)


def test_what_is_translated_runs_in_the_place_of_the_suite_and_says_which_tests_it_has_not(folder: Path) -> None:
    translated = folder / "loud.translated"
    translated.mkdir()
    (translated / "test_ours.py").write_text(
        "from loud.speech import loads\n\ndef test_right(): assert loads('2') == 2\n"
    )

    figures = program.run(SUITE, folder)

    assert (figures.passed, figures.run, figures.translated) == (1, 1, ("test_ours.py",))
    assert figures.left_out == ["test_each", "test_inside", "test_of_a_file", "test_of_a_server", "test_skipped"]


def test_each_suite_is_kept_by_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "SUITES", (SUITE, SUITES[0]))
    into = folder / "figures.json"

    program.main([str(folder), "--into", str(into)])

    assert list(kept(into)) == ["loud"]
    said = capsys.readouterr().out
    assert "loud: 3 of 5 at " in said
    assert f"Expected a checkout of {SUITES[0].source}" in said


def test_a_suite_that_there_is_not_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main([str(tmp_path), "quiet"])

    assert "'quiet'" in capsys.readouterr().err


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_each_test_that_does_not_pass_has_a_reason_and_each_reason_a_test(suite: Suite) -> None:
    figures = kept()[suite.name]

    assert [test for test in figures.failed if not suite.reason(test)] == []
    said = {suite.reason(test) for test in figures.failed}
    assert set(suite.reasons.values()) == said
