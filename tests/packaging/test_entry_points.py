"""What the distribution registers for others to find."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_ml_exporters import Exporter
from otel_ml_exporters.registry import BUILT_IN, GROUP, exporter_class
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
    needs_nothing = {"console", "jsonl", "otlp"}

    assert set(BUILT_IN) - needs_nothing <= set(project["optional-dependencies"])
