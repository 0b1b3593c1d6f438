"""`otel-ml demo`: what it is asked for, and the status that it ends with; the job itself takes most of a minute."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_ml.exceptions import MissingDependencyError
from otel_ml_service.cli import demo_command, main
from otel_ml_service.demo import run as demo

DIAGNOSE = """
import os, pathlib, signal
pathlib.Path(os.environ["SEEN"]).write_text(os.environ["OTEL_ML_DIR"])
if os.environ["ENDS"] == "signal":
    os.kill(os.getpid(), signal.SIGKILL)
raise SystemExit(int(os.environ["ENDS"]))
"""


@pytest.mark.parametrize(
    ("arguments", "wanted", "steps"),
    [([], None, 240), (["--steps", "120", "--to", "jsonl,wandb"], ("jsonl", "wandb"), 120)],
)
@pytest.mark.parametrize("is_good", [True, False])
def test_the_demo_is_given_what_it_was_asked_for_and_fails_where_something_is_not_as_it_should_be(
    arguments: list[str], wanted: Sequence[str] | None, steps: int, is_good: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    asked: list[object] = []

    def job(base: Path, exporters: Sequence[str] | None, count: int) -> bool:
        asked.append((base, exporters, count))
        return is_good

    monkeypatch.setattr(demo, "run_demo", job)

    assert main(["demo", "--dir", str(tmp_path), *arguments]) == (0 if is_good else 1)
    assert asked == [(tmp_path, wanted, steps)]


@pytest.mark.parametrize("arguments", [["--diagnose", "--steps", "240"], ["--diagnose", "--to", "jsonl"]])
def test_what_is_no_part_of_a_diagnosis_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *arguments]) == 2
    assert "--diagnose goes with --dir alone: leave out --to and --steps." in capsys.readouterr().err


def test_fewer_steps_than_show_anything_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--steps", "119"]) == 2


@pytest.mark.parametrize(("ends", "status"), [("0", 0), ("3", 3), ("signal", 137)])
def test_a_diagnosis_ends_as_its_job_did(
    ends: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "diagnose.py").write_text(DIAGNOSE)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("ENDS", ends)
    monkeypatch.setattr(demo_command, "shipped", lambda _: tmp_path)

    assert main(["demo", "--diagnose", "--dir", str(tmp_path / "runs")]) == status
    assert (tmp_path / "seen").read_text() == os.fspath(tmp_path / "runs")


def test_without_scikit_learn_the_demo_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)

    with pytest.raises(MissingDependencyError, match=r"The demo needs the package 'scikit-learn'.*otel-ml\[demo\]"):
        demo.run_demo(tmp_path, None, 1)
    assert list(tmp_path.iterdir()) == []
