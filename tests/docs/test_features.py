"""The table of features holds every id once, and says what the tests say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.catalogue_of_features import FEATURES, NOT_APPLICABLE
from tests.docs.features import Shown, markers_in, shown, table
from tests.docs.originals import suites
from tests.docs.test_readme_promises import all_test_names
from tests.e2e.jobs import ROOT


def test_every_id_of_the_five_systems_has_a_title() -> None:
    last = {"N": 34, "I": 23, "M": 38, "F": 23, "R": 22}

    assert list(FEATURES) == [f"{system}{number}" for system, most in last.items() for number in range(1, most + 1)]
    assert len(set(FEATURES.values())) == len(FEATURES)
    assert set(NOT_APPLICABLE) <= set(FEATURES)


def test_markers_are_found_on_functions_classes_and_modules(tmp_path: Path) -> None:
    source = tmp_path / "test_it.py"
    source.write_text(
        "pytestmark = [pytest.mark.e2e, pytest.mark.feature('N1', 'yes', 'module')]\n"
        "@pytest.mark.feature('N2', 'better', 'function')\n"
        "@pytest.mark.feature('N3', 'yes', 'too')\n"
        "async def test_a(): ...\n"
        "class TestB:\n"
        "    pytestmark = pytest.mark.feature('N4', 'yes', 'class')\n"
        "    @pytest.mark.feature('N5', 'yes', 'method')\n"
        "    def test_c(self): ...\n"
    )

    assert [(found.feature, found.test) for found in markers_in(source)] == [
        ("N1", "test_it.py"),
        ("N2", "test_it.py::test_a"),
        ("N3", "test_it.py::test_a"),
        ("N4", "test_it.py::TestB"),
        ("N5", "test_it.py::TestB::test_c"),
    ]


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("'N99', 'yes', 'x'", "no feature 'N99'"),
        ("'N1', 'maybe', 'x'", "got 'maybe'"),
        ("'N1', 'yes'", "expected feature"),
    ],
)
def test_a_marker_that_means_nothing_is_said_with_its_place(tmp_path: Path, marker: str, said: str) -> None:
    source = tmp_path / "test_it.py"
    source.write_text(f"@pytest.mark.feature({marker})\ndef test_a(): ...\n")

    with pytest.raises(ValueError, match=f"test_it.py:1: .*{said}"):
        list(markers_in(source))


def test_the_better_verdict_counts_and_what_is_not_shown_is_missing() -> None:
    text = table("N", [Shown("N1", "yes", "first", "a"), Shown("N1", "better", "second", "b")])

    assert f"| N1 | {FEATURES['N1']} | better | second | `b`<br>`a` |" in text
    assert f"| N2 | {FEATURES['N2']} | **missing** |  | |" in text


def test_every_note_of_a_marker_fits_a_cell_of_the_table() -> None:
    assert [marker for marker in shown() if not marker.note or "|" in marker.note or len(marker.note) > 120] == []


def test_every_test_that_a_guide_names_exists() -> None:
    guides = (ROOT / "docs" / "migrate").glob("*.md")
    named = {name for guide in guides for name in re.findall(r"`(test_\w+)`", guide.read_text(encoding="utf-8"))}
    theirs = {name.strip("`") for name in re.findall(r"`test_\w+`", suites())}

    assert len(named - theirs) > 20
    assert named - theirs - all_test_names() == set()
