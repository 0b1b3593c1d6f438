"""What may take its time says in a terminal what it is at, and for how long; a pipe gets nothing of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from google.protobuf import json_format

from tests.e2e.jobs import ROOT
from tests.otlp import FakeWriter
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import in_a_terminal, otel_ml
from tests.unit.otel_ml_service.cli.test_recover_command import left_by_a_dead_service

LONG_WORK: Sequence[tuple[list[str], list[str]]] = (
    (["report", "01abc", "02def", "--out", "r.html"], ["reading 01abc", "reading 02def", "drawing"]),
    (["report", "01abc", "--attach"], ["reading 01abc", "drawing", "attaching the report to 01abc"]),
    (["gc", "--keep", "0", "--yes"], ["measuring 01abc", "removing 01abc"]),
    (["replay", "01abc", "--to", "jsonl", "--experiment", "copy"], ["reading 01abc", "writing 01abc"]),
    (["replay", "recording.jsonl", "--to", "jsonl"], ["reading recording.jsonl: 100 %", "writing 04jkl"]),
    (["recover", "--all"], ["finishing 03ghi"]),
)
"""A command, and what it says one after the other."""

AT_ONCE = {"OTEL_ML_END_SILENCE": "1000"}
"""Else `recover` listens for half a minute, for ranks of the run on other hosts."""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for run_id in ("01abc", "02def"):
        write_run(tmp_path, run_id, digits_records(steps=2))
    left_by_a_dead_service(tmp_path, "03ghi")
    (tmp_path / "recording.jsonl").write_text("\n".join(recorded_by_a_collector("04jkl")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorded_by_a_collector(run_id: str) -> Iterator[str]:
    """Yield the lines of a recording of one rank."""
    writer = FakeWriter(experiment=run_id)
    for message in (*(writer.step(step, {"loss": 0.5}) for step in range(3)), writer.goodbye()):
        yield json_format.MessageToJson(message, indent=None)


@pytest.mark.parametrize(("arguments", "said"), LONG_WORK)
def test_in_a_terminal_it_says_what_it_is_at_and_for_how_long(
    arguments: list[str], said: list[str], base: Path
) -> None:
    _, text = in_a_terminal(base, *arguments, NO_COLOR="1", **AT_ONCE)

    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    found = [re.search(rf"{part}[^\r\n]* +0:\d\d:\d\d", shown) for part in said]
    assert None not in found, shown
    places = [one.start() for one in found if one]
    assert places == sorted(places)


@pytest.mark.parametrize(("arguments", "said"), LONG_WORK)
def test_in_a_pipe_nothing_of_that_is_said(arguments: list[str], said: list[str], base: Path) -> None:
    done = otel_ml(base, *arguments, **AT_ONCE)

    assert [part for part in said if part in done.stdout + done.stderr] == []


def test_what_a_program_reads_is_not_written_into_the_terminal_beside_it(base: Path) -> None:
    status, text = in_a_terminal(base, "gc", "--keep", "0", "--yes", "--json", into=base / "gc.json", NO_COLOR="1")

    rows = [json.loads(line) for line in (base / "gc.json").read_text().splitlines()]
    assert status == 0
    assert sorted(row["id"] for row in rows) == ["01abc", "02def"]
    assert '"id"' not in text


def test_all_commands_say_it_in_the_same_way() -> None:
    commands = (ROOT / "service" / "otel_ml_service" / "cli").glob("*.py")

    assert [path.name for path in commands if "rich.progress" in path.read_text()] == ["screen.py"]
