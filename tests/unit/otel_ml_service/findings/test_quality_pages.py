"""Figures of quality in the documentation stand beside the command that made them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.quality.jobs import KINDS
from tests.quality.pages import CHANGES, JOBS, TRACES, table_of, write

PAGE = """before

<!-- jobs: python -m tests.quality 1 -->

| old |

<!-- end of jobs -->

after
"""


def test_a_table_is_written_where_its_comment_is_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")

    write((page, "jobs"), "python -m tests.quality 2", "| new |\n| \\1 |")

    assert table_of((page, "jobs")) == ("python -m tests.quality 2", "| new |\n| \\1 |")
    kept = PAGE.replace("quality 1", "quality 2").replace("| old |", "| new |\n| \\1 |")
    assert page.read_text(encoding="utf-8") == kept


def test_a_page_without_the_place_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")

    with pytest.raises(ValueError, match=r"page.md has 0 places for 'traces'"):
        write((page, "traces"), "", "| new |")
    assert page.read_text(encoding="utf-8") == PAGE


def test_the_pages_have_a_row_for_each_kind_of_job_and_the_bars_are_met():
    command, table = table_of(JOBS)
    rows = {
        cells[1]: [int(cell.replace(",", "")) for cell in cells[2:8]] for cells in map(_cells, table.splitlines()[2:])
    }

    assert command.startswith("python -m tests.quality ")
    assert [*rows] == [*KINDS, "all"]
    to_be_found, first, among_three, exact, healthy, wrong = rows["all"]
    assert to_be_found >= 500
    assert first >= 0.95 * to_be_found
    assert among_three >= 0.99 * to_be_found
    assert exact >= 0.95 * to_be_found
    assert wrong <= healthy / 10_000


def test_the_published_traces_have_their_culprits_and_the_slow_downs_of_their_paper() -> None:
    command, table = table_of(TRACES)
    rows = {cells[1]: cells[2:5] for cells in map(_cells, table.splitlines()[2:])}
    published = {"AR": 1.973, "SE": 1.537, "ST": 1.179}

    assert command == "python -m tests.quality --traces FOLDER"
    assert rows.keys() == published.keys()
    for name, (_, _, slowdown) in rows.items():
        assert float(slowdown) == pytest.approx(published[name], rel=0.02), name
    assert set(re.findall(r"(?:rank|stage|host) \d+|nobody", rows["AR"][0])) == {"rank 0"}
    assert float(rows["AR"][1]) == pytest.approx(22.9, rel=0.1)
    assert set(re.findall(r"(?:rank|stage|host) \d+|nobody", rows["SE"][0])) == {"nobody"}
    assert set(re.findall(r"(?:rank|stage|host) \d+|nobody", rows["ST"][0])) == {"stage 3"}


def test_of_no_noise_is_more_than_one_change_told_in_ten_thousand_steps() -> None:
    command, table = table_of(CHANGES)
    told = {cells[1]: float(cells[2]) for cells in map(_cells, table.splitlines()[2:])}

    assert command.startswith("python -m tests.quality --series ")
    assert told.keys() >= {"normal", "Student t, 2 degrees", "log-normal, shape 1.5", "trend, t with 2 degrees"}
    assert max(told.values()) <= 1.0, told


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")]
