"""Each claim of the page on security names a test that there is."""

from __future__ import annotations

import re

from tests.docs.test_readme_promises import all_test_names
from tests.e2e.jobs import ROOT


def test_every_claim_names_a_test_that_there_is() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))

    assert len(named) > 30
    assert named - all_test_names() == set()


def test_every_row_of_a_table_of_rules_or_limits_names_one() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|[^\n]*shown by \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)

    assert len(tables) == 3
    assert [row for table in tables for row in table.splitlines() if "`test_" not in row] == []
