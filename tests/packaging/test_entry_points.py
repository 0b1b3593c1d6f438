"""What the distribution registers for others to find."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters import Exporter
from otel_ml_exporters.registry import BUILT_IN, GROUP, exporter_class
from otel_ml_service.cli.packages import OPTIONAL_PACKAGES
from tests.contract.cases import CASES, UNREADABLE
from tests.e2e.jobs import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.fixture
def project() -> dict[str, Any]:
    return tomllib.loads(Path(ROOT / "pyproject.toml").read_text())["project"]


def target(path: str) -> object:
    module, _, attribute = path.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def test_the_command_otel_ml_exists(project: dict[str, Any]) -> None:
    assert callable(target(project["scripts"]["otel-ml"]))


def test_the_pytest_plug_in_exists(project: dict[str, Any]) -> None:
    assert target(project["entry-points"]["pytest11"]["otel_ml"])


@pytest.mark.feature("F16", "better", "entry points, and a suite of tests for them")
def test_a_plug_in_group_of_that_name_is_declared(project: dict[str, Any]) -> None:
    assert GROUP in project["entry-points"]


def test_every_built_in_exporter_has_to_pass_the_contract() -> None:
    assert {case.id for case in [*CASES, *UNREADABLE]} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_exporter_loads(name: str) -> None:
    assert issubclass(exporter_class(name), Exporter)


def test_every_backend_has_an_extra_of_its_name(project: dict[str, Any]) -> None:
    needs_nothing = {"console", "jsonl", "kubeflow", "otlp", "traces"}

    assert set(BUILT_IN) - needs_nothing <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_row_of_the_table_does_not_bring_is_there(name: str, project: dict[str, Any]) -> None:
    """The steps of CONTRIBUTING: an extra, a case of the contract with its reader, and pages."""
    package, extras = BUILT_IN[name].package, project["optional-dependencies"]
    docs = ROOT / "docs"
    cases = {case.id: case for case in (*CASES, *UNREADABLE)}

    if package is not None:
        assert any(re.match(rf"{package}\b", needed) for needed in extras[name])
        assert re.search(rf"[\[,]{name}[\],]", extras["all"][0])
        assert f"| `{name}` | `{package}`" in (docs / "install.md").read_text()
        assert OPTIONAL_PACKAGES[package] == name
    assert cases[name] in UNREADABLE or (ROOT / "tests/contract/readers" / f"{cases[name].reader}.py").exists()
    assert (docs / "exporters" / f"{name}.md").exists()
    assert f"exporters/{name}.md" in (ROOT / "mkdocs.yml").read_text()
    assert f"({name}.md)" in (docs / "exporters" / "index.md").read_text()
