"""What is collected: doctests only where there are some, files of tests only where one of them could be asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROMPT = b">>>"

MARKED = re.compile(r"^pytestmark = .*$", re.MULTILINE)
"""Where all tests of a file have their marks."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave alone what has nothing to run: to see that, pytest would import each file, and torch or Ray with it."""
    if collection_path.suffix != ".py":
        return None
    if collection_path.name.startswith("test_"):
        return True if _is_left_out(collection_path.read_text(encoding="utf-8"), config.option.markexpr) else None
    return None if PROMPT in collection_path.read_bytes() else True


def _is_left_out(source: str, asked: str) -> bool:
    """Whether all tests of a file have a mark that `-m` does not want, as far as `not a and not b` says it."""
    unwanted = set() if re.search(r"\bor\b|\(", asked) else set(re.findall(r"\bnot (\w+)", asked))
    marks = set(re.findall(r"pytest\.mark\.(\w+)", " ".join(MARKED.findall(source))))
    return not marks.isdisjoint(unwanted)
