"""The contract that is shipped for authors of plug-ins: the documentation's exporter passes it, and defects do not."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
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
