"""What may take its time says in a terminal what it is at, and for how long; a pipe gets nothing of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import in_a_terminal, otel_ml

LONG_WORK: Sequence[tuple[list[str], list[str]]] = (
    (["report", "01abc", "02def", "--out", "r.html"], ["reading 01abc", "reading 02def", "drawing"]),
    (["report", "01abc", "--attach"], ["reading 01abc", "drawing", "attaching the report to 01abc"]),
    (["gc", "--keep", "0", "--yes"], ["measuring 01abc", "removing 01abc"]),
    (["replay", "01abc", "--to", "jsonl", "--experiment", "copy"], ["reading 01abc"]),
)
"""A command, and what it says one after the other."""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for run_id in ("01abc", "02def"):
        write_run(tmp_path, run_id, digits_records(steps=2))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("arguments", "said"), LONG_WORK)
def test_in_a_terminal_it_says_what_it_is_at_and_for_how_long(
    arguments: list[str], said: list[str], base: Path
) -> None:
    _, text = in_a_terminal(base, *arguments, NO_COLOR="1")

    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    found = [re.search(rf"{part} +0:\d\d:\d\d", shown) for part in said]
    assert None not in found, shown
    places = [one.start() for one in found if one]
    assert places == sorted(places)


@pytest.mark.parametrize(("arguments", "said"), LONG_WORK)
def test_in_a_pipe_nothing_of_that_is_said(arguments: list[str], said: list[str], base: Path) -> None:
    done = otel_ml(base, *arguments)

    assert [part for part in said if part in done.stdout + done.stderr] == []


def test_what_a_program_reads_is_not_written_into_the_terminal_beside_it(base: Path) -> None:
    status, text = in_a_terminal(base, "gc", "--keep", "0", "--yes", "--json", into=base / "gc.json", NO_COLOR="1")

    rows = [json.loads(line) for line in (base / "gc.json").read_text().splitlines()]
    assert status == 0
    assert sorted(row["id"] for row in rows) == ["01abc", "02def"]
    assert '"id"' not in text
