"""Tests wait for a state, not for a time, and use what is public; where one does not, it says why on that line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SLEEPS = re.compile(r"\bsleep\(\s*(?:0\.\d*[1-9]\d*|[1-9][\d.]*|[A-Z][A-Z_]+)\s*\)")
PRIVATE = re.compile(
    r"setattr\((?:\"[^\"]*\._[^\".]*\"|[^,\"]*(?<!torch\._C), \"_)"
    r"|^\s*(?!self\.|cls\.|torch\._C )[A-Za-z]\w*(?:\.\w+)*\._(?!_)\w+ \+?= "
)


def unexplained(pattern: re.Pattern[str]) -> list[str]:
    """Return where a line of a test, or of a program in one, has it and no comment."""
    return [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] != "benchmarks" and path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line) and "#" not in line
    ]


def test_no_test_sleeps_for_a_fixed_time_without_a_reason() -> None:
    assert unexplained(SLEEPS) == []


def test_no_test_replaces_what_is_private_without_a_reason() -> None:
    assert unexplained(PRIVATE) == []


@pytest.mark.parametrize("line", ["time.sleep(0.01)", "await asyncio.sleep(1)", "sleep(2.5)", "time.sleep(PAUSE_S)"])
def test_a_fixed_sleep_is_seen(line: str) -> None:
    assert SLEEPS.search(line)


@pytest.mark.parametrize("line", ["time.sleep(0)", "time.sleep(pause)", "time.sleep(0.1 * chance)"])
def test_giving_way_and_a_time_that_is_computed_are_none(line: str) -> None:
    assert not SLEEPS.search(line)


@pytest.mark.parametrize(
    "line",
    [
        'setattr(module, "_MOST", 3)',
        'setattr("a.b._MOST", 3)',
        'patch.setattr(a.b, "_c", 1)',
        "a._b._most = 3",
        "    a._n += 1",
    ],
)
def test_a_private_name_is_seen(line: str) -> None:
    assert PRIVATE.search(line)
