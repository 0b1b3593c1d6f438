"""A mutant is a program that differs in one place, and its trial says whether a test would notice."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.mutants.covering import Covering
from tests.mutants.operators import mutants_of
from tests.mutants.survivors import change_of, equivalent
from tests.mutants.tree import ROOT
from tests.mutants.trial import HANGS, KILLED, SURVIVED, Outcome, Trials

SOURCE = b'''"""A module."""
from __future__ import annotations

LIMIT = 3
LARGEST = 1.7976931348623157e308
NAMES = ["\xc3\xa9"]
__slots__ = ("one", "two")


def first(numbers: list[int] | None, least: int = 1) -> str | None:
    """Return something."""
    for number in numbers or ():
        if number <= least and not number == 7:
            continue
        return f"{number + 1}"
    return None
'''


def test_each_mutant_differs_from_the_module_in_one_place_and_can_be_compiled() -> None:
    mutants = mutants_of(SOURCE)

    for mutant in mutants:
        compile(mutant.applied(SOURCE), "module", "exec")
        assert mutant.applied(SOURCE) != SOURCE
    assert len({mutant.applied(SOURCE) for mutant in mutants}) == len(mutants)


def test_what_runs_is_mutated_and_annotations_texts_and_declarations_are_not() -> None:
    changes = {change_of("module", SOURCE, mutant.applied(SOURCE))[1:] for mutant in mutants_of(SOURCE)}

    test = "if number <= least and not number == 7:"
    assert changes == {
        ("LIMIT = 3", "LIMIT = (3 + 1)"),
        (
            "def first(numbers: list[int] | None, least: int = 1) -> str | None:",
            "def first(numbers: list[int] | None, least: int = (1 + 1)) -> str | None:",
        ),
        ("for number in numbers or ():", "for number in numbers and ():"),
        (test, "if number < least and not number == 7:"),
        (test, "if number <= least or not number == 7:"),
        (test, "if number <= least and (number == 7):"),
        (test, "if number <= least and not number != 7:"),
        (test, "if number <= least and not number == (7 + 1):"),
        (test, "if (not (number <= least and not number == 7)):"),
        ("continue", "pass"),
        ('return f"{number + 1}"', "return None"),
    }


@pytest.mark.parametrize(
    ("mutated", "verdict", "by", "timeout"),
    [
        ("return 1 + 1", SURVIVED, "", 60.0),
        ("return 3", KILLED, "test_two.py::test_it", 60.0),
        ("while True: pass", KILLED, HANGS, 5.0),
        ("return 2 +", KILLED, "nothing can be imported, or the process dies", 60.0),
    ],
)
def test_a_trial_says_whether_a_test_of_the_copy_fails(
    tmp_path: Path, mutated: str, verdict: str, by: str, timeout: float
) -> None:
    (tmp_path / "two.py").write_text("def two():\n    return 2\n")
    # As dill does, which comes with torch: without a main module each test with it would fail, and nothing survive.
    (tmp_path / "test_two.py").write_text("import __main__\nfrom two import two\n\ndef test_it(): assert two() == 2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    for folder in ("tests", "otel_ml", "service", "exporters"):  # of pytest's plug-ins that are installed
        (tmp_path / folder).symlink_to(ROOT / folder)

    # In a process of its own, as trials are: one that is forked from threads may wait for a lock for ever.
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        outcome = processes.submit(
            trial_of, tmp_path, "two.py", f"def two():\n    {mutated}\n", "test_two.py::test_it", timeout
        ).result()

    assert (outcome.verdict, outcome.by) == (verdict, by)
    assert (tmp_path / "two.py").read_text() == "def two():\n    return 2\n"


def trial_of(copy: Path, file: str, mutated: str, test: str, timeout: float) -> Outcome:
    """Try one mutant."""
    return Trials(copy).of(file, mutated.encode(), [test], timeout)


def test_the_tests_that_are_named_like_a_file_are_asked_whatever_they_run_in_their_own_process() -> None:
    own, runs_it, other = "tests/unit/test_one.py::test_a", "tests/test_two.py::test_b", "tests/test_x.py::test_c"
    covering = Covering(seconds={own: 9.0, runs_it: 1.0, other: 0.5})
    covering.tests["package/one.py"][3] = {runs_it}

    assert covering.of("package/one.py", [3]) == [own, runs_it]
    assert covering.of("package/one.py", [4]) == [own]


def test_each_mutant_of_the_list_is_one_of_the_tree() -> None:
    for file, was, becomes in equivalent():
        source = (ROOT / file).read_bytes()
        made = {change_of(file, source, mutant.applied(source)) for mutant in mutants_of(source)}
        assert (file, was, becomes) in made
