"""Processes that name one run by its id, and are numbered by nobody, each take the lowest rank that is free."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.identity.free_rank import leave_rank, take_rank

PROGRAM = """
import sys
from otel_ml._internal.identity.free_rank import leave_rank, take_rank
print(take_rank("run", sys.argv[1]), flush=True)
for line in sys.stdin:
    leave_rank("run")
    print("left", flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@contextmanager
def another_process(role: str = "trainer") -> Iterator[tuple[int, subprocess.Popen[str]]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process


def test_each_that_lives_has_a_rank_and_one_that_has_died_gives_its_own_to_the_next() -> None:
    with ExitStack() as living:
        first, _ = living.enter_context(another_process())
        with another_process() as (second, process):
            third, _ = living.enter_context(another_process())
            process.kill()
        again, _ = living.enter_context(another_process())

    assert (first, second, third, again) == (0, 1, 2, 1)
    with another_process() as (after_all, _):
        assert after_all == 0


def test_one_that_has_left_the_run_gives_its_rank_to_the_next_while_it_lives() -> None:
    with another_process() as (first, process):
        assert process.stdin is not None
        assert process.stdout is not None
        print("leave", file=process.stdin, flush=True)
        assert process.stdout.readline() == "left\n"
        with another_process() as (second, _):
            assert (first, second) == (0, 0)


def test_a_process_that_asks_again_has_the_rank_it_had() -> None:
    with another_process() as (first, _):
        assert (first, take_rank("run", "trainer"), take_rank("run", "trainer")) == (0, 1, 1)
    assert take_rank("run", "trainer") == 1
    leave_rank("run")
    assert take_rank("run", "trainer") == 0


def test_ranks_count_anew_in_each_run_and_role() -> None:
    with another_process() as (first, _), another_process("judge") as (judge, _):
        assert (first, judge, take_rank("other", "trainer"), take_rank("run", "trainer")) == (0, 0, 0, 1)


@pytest.mark.parametrize("text", ["", "[[", '{"a": 1}', "[[1, 2]]", "3"])
def test_a_damaged_file_is_replaced(folder: Path, text: str) -> None:
    assert take_rank("run", "trainer") == 0
    [file] = folder.rglob("ranks-by-id-*.json")
    file.write_text(text)

    with another_process() as (first, _):
        assert (first, take_rank("run", "trainer")) == (0, 1)


def test_where_nothing_can_be_written_down_each_is_rank_0_and_that_is_said(folder: Path) -> None:
    take_rank("run", "trainer")
    [file] = folder.rglob("ranks-by-id-*.json")
    file.unlink()
    file.mkdir()
    said: list[str] = []
    reporter.connect(said.append)

    assert take_rank("run", "trainer") == 0
    assert len(said) == 1
    assert "cannot write down which ranks they are: IsADirectoryError" in said[0]
