"""What the documentation says about settings, telemetry and exporters is what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.registry import BUILT_IN
from tests.docs.bounds import BOUNDS, Bound
from tests.docs.tables import clauses, filled, pages
from tests.e2e.jobs import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert text == filled(text), "Run: python -m tests.docs.tables"


@pytest.mark.parametrize("exporter", BUILT_IN)
def test_every_exporter_has_a_page_with_its_four_clauses(exporter: str) -> None:
    page = (ROOT / "docs" / "exporters" / f"{exporter}.md").read_text(encoding="utf-8")

    names = [name for name, text in clauses(exporter) if text in page]
    assert names == ["Guarantee", "Ordering", "Non-finite values", "Names"]


def test_every_base_dependency_is_explained() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    section = project.partition("\ndependencies = [")[2].partition("]")[0]
    packages = [line.strip().strip('",').partition(">=")[0] for line in section.splitlines() if line.strip()]
    assert packages
    assert [package for package in packages if f"| `{package}` |" not in page] == []


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.what)
def test_every_bound_is_reached_by_a_test(bound: Bound) -> None:
    file, _, name = bound.test.partition("::")

    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
