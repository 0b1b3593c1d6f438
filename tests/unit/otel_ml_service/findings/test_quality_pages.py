"""Figures of quality in the documentation stand beside the command that made them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.quality.__main__ import main
from tests.quality.jobs import KINDS
from tests.quality.pages import CHANGES, DOCS, JOBS, TRACES, table_of, write
from tests.quality.parts import PARTS, SEEDS, SERIES, Asked

PAGE = """before

<!-- jobs: python -m tests.quality 1 -->

| old |

<!-- end of jobs -->

after
"""


def in_docs(place: tuple[str, str]) -> tuple[Path, str]:
    page, name = place
    return DOCS / page, name


def test_one_command_makes_every_table_and_writes_it_beside_the_command_that_makes_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As little of each part as there is: what it measures is not looked at here."""
    docs, published = tmp_path / "diagnostics", tmp_path / "traces"
    shutil.copytree(DOCS, docs)
    _write_trace(published)

    assert main(["--seeds", "2", "--series", "2", "--traces", str(published), "--docs", str(docs), "--write"]) == 0

    said = capsys.readouterr()
    for name, part in PARTS.items():
        command, table = table_of((docs / part.place[0], part.place[1]))
        assert command.startswith(f"python -m tests.quality {name} ")
        assert f"{command}\n\n{table}\n" in said.out
        assert table != table_of(in_docs(part.place))[1]
    assert said.err == "", "progress is for a terminal"


def test_without_the_traces_their_table_stays_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = tmp_path / "diagnostics"
    shutil.copytree(DOCS, docs)

    assert main(["traces", "changes", "--series", "2", "--docs", str(docs), "--write"]) == 1

    assert "traces: left out. The traces are not here: --traces FOLDER" in capsys.readouterr().err
    assert table_of((docs / TRACES[0], TRACES[1])) == table_of(in_docs(TRACES))
    assert table_of((docs / CHANGES[0], CHANGES[1]))[0] == "python -m tests.quality changes --series 2"


def test_a_part_that_there_is_not_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["everything"])

    assert "expected parts of jobs, roles, traces, changes, got 'everything'" in capsys.readouterr().err


def test_the_page_of_why_names_the_command_and_links_every_table_with_its_traces_and_seeds() -> None:
    text = (DOCS / "why.md").read_text(encoding="utf-8")
    whole = Asked(range(SEEDS), SERIES, None)
    section = text[text.index("## How good it is") : text.index("## Two runs")]

    assert "python -m tests.quality --traces FOLDER --write" in section
    for name, part in PARTS.items():
        [row] = [line for line in section.splitlines() if line.startswith(f"| `{name}` |")]
        page = part.place[0]
        anchor = "#what-a-change-is" if page == "why.md" else f"{page}#how-good-it-is"
        assert f"]({anchor})" in row
        assert table_of(in_docs(part.place))[0] == part.command(whole), "the table of the page is of the whole part"
    assert all(f"{number:,}" in section for number in (SEEDS, SEEDS - 1, SERIES))
    assert {cells[1] for cells in map(_cells, table_of(in_docs(TRACES))[1].splitlines()[2:])} <= set(
        re.findall(r"\b[A-Z]{2}\b", section)
    )


def _write_trace(folder: Path) -> None:
    """Write a trace in the form of the published ones: two replicas of two stages, one of them slow."""
    folder.mkdir()
    rows = [
        {"dp_rank": replica, "stage": stage, "rank": 2 * replica + stage, "step": step, "optype": kind, "seq_id": 0,
         "start_ts": float(step), "duration": 2.0 if replica and kind == "forward-compute" else 1.0}
        for step in range(20) for replica in range(2) for stage in range(2)
        for kind in ("params-all-gather", "forward-compute", "forward-send", "forward-recv", "backward-compute",
                     "backward-send", "backward-recv", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
                     "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer")
    ]  # fmt: skip
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "trace-XX.parquet")


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
    command, table = table_of(in_docs(JOBS))
    rows = {
        cells[1]: [int(cell.replace(",", "")) for cell in cells[2:8]] for cells in map(_cells, table.splitlines()[2:])
    }

    assert command.startswith("python -m tests.quality jobs ")
    assert [*rows] == [*KINDS, "all"]
    to_be_found, first, among_three, exact, healthy, wrong = rows["all"]
    assert to_be_found >= 500
    assert first >= 0.95 * to_be_found
    assert among_three >= 0.99 * to_be_found
    assert exact >= 0.95 * to_be_found
    assert wrong <= healthy / 10_000


def test_the_published_traces_have_their_culprits_and_the_slow_downs_of_their_paper() -> None:
    command, table = table_of(in_docs(TRACES))
    rows = {cells[1]: cells[2:5] for cells in map(_cells, table.splitlines()[2:])}
    published = {"AR": 1.973, "SE": 1.537, "ST": 1.179}

    assert command == "python -m tests.quality traces --traces FOLDER"
    assert rows.keys() == published.keys()
    for name, (_, _, slowdown) in rows.items():
        assert float(slowdown) == pytest.approx(published[name], rel=0.02), name
    assert set(re.findall(r"(?:rank|stage|host) \d+|nobody", rows["AR"][0])) == {"rank 0"}
    assert float(rows["AR"][1]) == pytest.approx(22.9, rel=0.1)
    assert set(re.findall(r"(?:rank|stage|host) \d+|nobody", rows["SE"][0])) == {"nobody"}
    assert set(re.findall(r"(?:rank|stage|host) \d+|nobody", rows["ST"][0])) == {"stage 3"}


def test_of_no_noise_is_more_than_one_change_told_in_ten_thousand_steps() -> None:
    command, table = table_of(in_docs(CHANGES))
    told = {cells[1]: float(cells[2]) for cells in map(_cells, table.splitlines()[2:])}

    assert command.startswith("python -m tests.quality changes --series ")
    assert told.keys() >= {"normal", "Student t, 2 degrees", "log-normal, shape 1.5", "trend, t with 2 degrees"}
    assert max(told.values()) <= 1.0, told


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")]
