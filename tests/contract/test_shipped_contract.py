"""The contract that is shipped for authors of plug-ins: the documentation's exporter passes it, and defects do not."""

from __future__ import annotations

import csv
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml_exporters.contract import ExporterCase, ExporterContract, Point
from otel_ml_exporters.records import RunInfo
from tests.surroundings import SOURCES

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/exporters/write-your-own.md"

DEFECTIVE = """
from my_package.csv_exporter import CsvExporter


class Defective(CsvExporter):
    {body}
"""

DEFECTS = {
    "test_a_writer_that_is_killed_again_and_again_loses_nothing": "def force_flush(self, timeout): pass",
    "test_the_next_life_goes_on_where_the_last_one_ended": """def start(self, run):
        (run.dir / 'metrics.csv').unlink(missing_ok=True)
        super().start(run)""",
    "test_an_export_after_shutdown_is_refused": "def export(self, records): pass",
    "test_a_correction_of_an_earlier_step_is_stored": """def export(self, records):
        super().export([one for one in records if not getattr(one, 'amendment', False)])""",
}
"""Clause → what an exporter may do that it forbids."""


def rows_of(run: RunInfo) -> Iterator[Point]:
    with (run.dir / "metrics.csv").open(newline="") as file:
        for _, axis, step, name, value in csv.reader(file):
            yield name, axis, int(step), float(value)


def lines_of(run: RunInfo) -> Iterator[Point]:
    for line in (run.dir / "metrics.jsonl").read_text().splitlines():
        found = json.loads(line)
        for name, value in found.get("values", {}).items():
            if "axis" in found:
                yield name, found["axis"], found["step"], value


@pytest.fixture
def printed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder with the exporter of the page in a package, and its test; every process finds them."""
    folder = tmp_path_factory.mktemp("plugin")
    source, _, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "my_package").mkdir()
    (folder / "my_package" / "csv_exporter.py").write_text(source)
    (folder / "test_csv_exporter.py").write_text(test)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for module in ("my_package", "my_package.csv_exporter", "defective"):
        sys.modules.pop(module, None)


def test_the_test_that_the_page_shows_passes_in_a_project_of_its_own(printed: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(printed), SOURCES])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--rootdir", str(printed), str(printed)]
    done = subprocess.run(command, cwd=printed, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    clauses = [name for name in vars(ExporterContract) if name.startswith("test_")]
    assert f"{len(clauses)} passed" in done.stdout


class TestJsonlExporter(ExporterContract):
    @pytest.fixture
    def case(self) -> ExporterCase:
        return ExporterCase("jsonl", read=lines_of)


@pytest.mark.parametrize("clause", DEFECTS)
def test_an_exporter_with_a_defect_fails_the_clause_that_forbids_it(clause: str, printed: Path, tmp_path: Path) -> None:
    (printed / "defective.py").write_text(DEFECTIVE.format(body=DEFECTS[clause]))
    case = ExporterCase("defective:Defective", read=rows_of)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(ExporterContract(), clause)(case, tmp_path)


def test_an_exporter_that_cannot_be_started_fails_the_contract_instead_of_holding_it_up(
    printed: Path, tmp_path: Path
) -> None:
    (printed / "defective.py").write_text(DEFECTIVE.format(body="def start(self, run): raise OSError('no such host')"))
    case = ExporterCase("defective:Defective", read=rows_of)

    with pytest.raises(AssertionError, match="ended by itself"):
        ExporterContract().test_a_writer_that_is_killed_again_and_again_loses_nothing(case, tmp_path)


IN_A_DATABASE = """
import sqlite3
from otel_ml_exporters import Exporter, ExporterClosedError, StepRecord

class Database(Exporter):
    def start(self, run):
        self.db = sqlite3.connect(run.dir / "rows.db", isolation_level=None)
        self.db.execute("CREATE TABLE IF NOT EXISTS rows (name, axis, step, value)")
        self.db.execute("CREATE TABLE IF NOT EXISTS position (seq)")

    def position(self):
        return self.db.execute("SELECT coalesce(max(seq), 0) FROM position").fetchone()[0]

    def export(self, records):
        kept = [record for record in records if isinstance(record, StepRecord)]
        {begin}
        for record in kept:
            rows = [(name, record.axis, record.step, value) for name, value in record.values.items()]
            self.db.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
        {middle}
        self.db.execute("INSERT INTO position VALUES (?)", (records[-1].seq,))
        {end}

    def shutdown(self, timeout, status):
        self.db.close()
"""


@pytest.mark.parametrize(
    ("begin", "middle", "end", "is_right"),
    [
        ("self.db.execute('BEGIN')", "pass", "self.db.execute('COMMIT')", True),
        ("pass", "pass", "pass", False),
        ("self.db.execute('BEGIN')", "self.db.execute('COMMIT')", "pass", False),
    ],
    ids=["as one", "each by itself", "the position by itself"],
)
def test_values_and_their_position_are_to_be_stored_as_one(
    printed: Path, tmp_path: Path, begin: str, middle: str, end: str, is_right: bool
) -> None:
    (printed / "defective.py").write_text(IN_A_DATABASE.format(begin=begin, middle=middle, end=end))
    case = ExporterCase("defective:Database", read=rows_in_database)

    clause = ExporterContract().test_a_kill_in_the_middle_of_an_export_stores_nothing_twice
    if is_right:
        clause(case, tmp_path)
    else:
        with pytest.raises(AssertionError, match="there twice"):
            clause(case, tmp_path)


def test_an_exporter_whose_export_fails_is_not_taken_for_one_that_stores_nothing_twice(
    printed: Path, tmp_path: Path
) -> None:
    begin = "raise OSError('no such host')"
    (printed / "defective.py").write_text(IN_A_DATABASE.format(begin=begin, middle="pass", end="pass"))
    case = ExporterCase("defective:Database", read=rows_in_database)

    with pytest.raises(AssertionError, match="was not killed failed"):
        ExporterContract().test_a_kill_in_the_middle_of_an_export_stores_nothing_twice(case, tmp_path)


def rows_in_database(run: RunInfo) -> Iterator[Point]:
    with closing(sqlite3.connect(run.dir / "rows.db")) as database:
        yield from database.execute("SELECT name, axis, step, value FROM rows ORDER BY rowid")
