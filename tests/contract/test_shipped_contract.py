"""The contract that is shipped for authors of plug-ins: the documentation's exporter passes it, and defects do not."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml_exporters.contract import ExporterCase, ExporterContract, Point
from otel_ml_exporters.records import RunInfo

PAGE = Path(__file__).resolve().parents[2] / "docs" / "exporters" / "write-your-own.md"

BUFFERING = """
from csv_exporter import CsvExporter

def vars_of(record):
    return getattr(record, "amendment", False)

class {name}(CsvExporter):
    {body}
"""

DEFECTS = {
    "Buffering": (
        "def force_flush(self, timeout): pass",
        "test_a_writer_that_is_killed_again_and_again_loses_nothing",
    ),
    "Truncating": (
        "def start(self, run):\n        (run.dir / 'metrics.csv').unlink(missing_ok=True)\n        super().start(run)",
        "test_the_next_life_goes_on_where_the_last_one_ended",
    ),
    "Reopening": (
        "def export(self, records):\n        pass",
        "test_an_export_after_shutdown_is_refused",
    ),
    "Forgetting": (
        "def export(self, records):\n        super().export([row for row in records if not vars_of(row)])",
        "test_a_correction_of_an_earlier_step_is_stored",
    ),
}


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
def printed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the exporter of the page as a module, which every process finds."""
    folder = tmp_path_factory.mktemp("plugin")
    [source, *_] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "csv_exporter.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for module in ("csv_exporter", "defective"):
        sys.modules.pop(module, None)


class TestPrintedExporter(ExporterContract):
    @pytest.fixture
    def case(self, printed: Path) -> ExporterCase:
        return ExporterCase("csv_exporter:CsvExporter", read=rows_of)


class TestJsonlExporter(ExporterContract):
    @pytest.fixture
    def case(self) -> ExporterCase:
        return ExporterCase("jsonl", read=lines_of)


@pytest.mark.parametrize("name", DEFECTS)
def test_an_exporter_with_a_defect_fails_the_clause_that_forbids_it(name: str, printed: Path, tmp_path: Path) -> None:
    body, clause = DEFECTS[name]
    (printed / "defective.py").write_text(BUFFERING.format(name=name, body=body))
    case = ExporterCase(f"defective:{name}", read=rows_of)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(ExporterContract(), clause)(case, tmp_path)
