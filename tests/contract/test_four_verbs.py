"""A class with the four verbs and nothing else is an exporter: by its entry point, in the contract, in a job."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml_exporters.contract import ExporterCase, ExporterContract, Point
from otel_ml_exporters.records import RunInfo
from otel_ml_exporters.registry import exporter_class
from tests.e2e.jobs import environment, finished, the_run_in
from tests.plugin_package import install

PLAIN = '''
import csv


class Plain:
    """Appends `axis, step, name, value`.

    **Guarantee**: at least once.
    """

    _file = None

    def start(self, run):
        self._file = (run.dir / "plain.csv").open("a", newline="")

    def export(self, records):
        if self._file is None:
            from otel_ml_exporters import ExporterClosedError
            raise ExporterClosedError("plain")
        rows = csv.writer(self._file)
        for record in records:
            for name, value in getattr(record, "values", {}).items():
                if hasattr(record, "axis"):
                    rows.writerow([record.axis, record.step, name, value])

    def force_flush(self, timeout):
        if self._file is not None:
            self._file.flush()

    def shutdown(self, timeout, status):
        if self._file is not None:
            self._file.close()
            self._file = None


class Two:
    def export(self, records): ...
    def force_flush(self, timeout): ...


class Strict(type):
    """A metaclass of the author's own."""


class Classy(Plain, metaclass=Strict): ...


class Slotted:
    __slots__ = ("file",)
    def start(self, run): ...
    def export(self, records): ...
    def force_flush(self, timeout): ...
    def shutdown(self, timeout, status): ...
'''
NAMES = "plain = acme:Plain\ntwo = acme:Two\nslotted = acme:Slotted\nclassy = acme:Classy\nnothing = acme:csv\n"
JOB = """
import otel_ml
with otel_ml.init("exp", exporters="plain,jsonl"):
    for step in range(12):
        otel_ml.log({"loss": float(step)}, step=step)
"""


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder in which a package with the classes is installed, for this process and those it starts."""
    package = install(tmp_path_factory.mktemp("site"), {"acme": PLAIN}, NAMES)
    monkeypatch.syspath_prepend(str(package))
    yield package
    sys.modules.pop("acme", None)


def rows_of(run: RunInfo) -> Iterator[Point]:
    with (run.dir / "plain.csv").open(newline="") as file:
        for axis, step, name, value in csv.reader(file):
            yield name, axis, int(step), float(value)


@pytest.mark.usefixtures("installed")
class TestAPlainClass(ExporterContract):
    @pytest.fixture
    def case(self) -> ExporterCase:
        return ExporterCase("plain", read=rows_of)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["plain", "slotted"])
def test_what_it_does_not_say_is_the_usual(name: str) -> None:
    made = exporter_class(name)()

    assert (made.position(), made.is_intact, made.url, made.notice, made.place, made.every) == (
        None, True, None, None, None, 1,
    )  # fmt: skip
    assert (type(made).__name__, type(made).__module__) == (name.title(), "acme")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("name", "lacks"), [("two", "start, shutdown"), ("nothing", "start, export, force_flush")])
def test_what_lacks_a_verb_is_refused_and_the_verb_is_named(name: str, lacks: str) -> None:
    with pytest.raises(TypeError, match=f"has no {lacks}"):
        exporter_class(name)


@pytest.mark.usefixtures("installed")
def test_a_class_that_cannot_be_completed_is_told_to_subclass() -> None:
    with pytest.raises(TypeError, match=r"Subclass otel_ml_exporters\.Exporter"):
        exporter_class("classy")


def test_a_job_writes_through_it(installed: Path, tmp_path: Path) -> None:
    found = environment()
    env = {**found, "PYTHONPATH": os.pathsep.join([str(installed), found["PYTHONPATH"]])}
    finished([sys.executable, "-c", JOB], env, tmp_path)

    folder = the_run_in(tmp_path / "otel-ml-runs")

    with (folder / "plain.csv").open(newline="") as file:
        rows = [(int(step), float(value)) for axis, step, name, value in csv.reader(file) if name == "loss"]
    assert rows == [(step, float(step)) for step in range(12)]
