"""The specification against the code: what is cited, named and counted in it is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import otel_ml
from otel_ml.wire import attributes, versions
from otel_ml.wire.reductions import ACROSS, VALUE_ATTRIBUTES, WITHIN
from otel_ml_service import versions as stored
from otel_ml_service.aggregation.settings import EngineSettings
from tests.e2e.jobs import ROOT

PAGES = ("protocol", "architecture")
WRITTEN = (".py", ".md", ".c", ".h", ".toml", ".yaml")
_CITATION = re.compile(r"(?P<page>protocol|architecture)(?:\.md)?\)? §(?P<section>\d+(?:\.\d+)*)")
_PATH = re.compile(r"`((?:otel_ml|service|exporters|native|tests|collector-config)/[\w./-]+?)/?`")


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """Return number → text, up to the next heading."""
    parts = re.split(r"^#{2,3} (\d+(?:\.\d+)*)\.? ", text_of(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def written() -> Iterator[Path]:
    """Yield everything that people wrote, without what was installed or built."""
    for place in ("otel_ml", "service", "exporters", "native", "tests", "docs", "examples", "collector-config"):
        yield from (path for path in sorted((ROOT / place).rglob("*")) if path.suffix in WRITTEN)
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "pyproject.toml"))


def citations() -> Iterator[tuple[str, str, str]]:
    """Yield (where, page, section)."""
    for path in written():
        text = path.read_text(encoding="utf-8")
        for found in _CITATION.finditer(text):
            yield str(path.relative_to(ROOT)), found["page"], found["section"]


def test_every_section_that_is_cited_exists() -> None:
    found = list(citations())

    assert len({where for where, _, _ in found}) > 50
    assert [one for one in found if one[2] not in sections(one[1])] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_section_that_a_page_points_to_in_itself_exists(page: str) -> None:
    pointed = set(re.findall(r"§(\d+(?:\.\d+)*)", text_of(page)))

    assert pointed - sections(page).keys() == set()


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    named = {path for path in _PATH.findall(text_of(page)) if not path.startswith("otel_ml/") or "." in path}

    assert len(named) > 50
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("house", ["otel_ml", "service", "exporters"])
def test_the_specification_is_cited_from_each_house_and_names_files_of_each(house: str) -> None:
    assert [where for where, _, _ in citations() if where.startswith(f"{house}/")]
    assert [path for page in PAGES for path in _PATH.findall(text_of(page)) if path.startswith(f"{house}/")]


@pytest.mark.parametrize("section", ["2", "3"])
def test_every_file_that_a_drawing_names_exists(section: str) -> None:
    named = set(re.findall(r"[\w/]+\.py\b", sections("architecture")[section]))
    there = [path.as_posix() for house in ("otel_ml", "service", "exporters") for path in (ROOT / house).rglob("*.py")]

    assert len(named) > 5
    assert [path for path in sorted(named) if not any(one.endswith(f"/{path}") for one in there)] == []


@pytest.mark.parametrize("page", PAGES)
def test_sections_are_numbered_without_a_gap(page: str) -> None:
    numbers = list(sections(page))
    following = {number: _next(number) for number in numbers}

    assert len(set(numbers)) == len(numbers)
    assert [number for number, before in following.items() if before and before not in numbers] == []


def _next(number: str) -> str | None:
    """Return the number that stands before a number of the same rank; None for the first."""
    *above, last = number.split(".")
    return ".".join((*above, str(int(last) - 1))) if int(last) > 1 else None


def test_every_rule_names_the_code_that_does_it_and_a_test_that_holds_it() -> None:
    rules = {number: text for number, text in sections("protocol").items() if "." in number}

    assert len(rules) > 40
    assert [number for number, text in rules.items() if "Code: `" not in text] == []
    assert [number for number, text in rules.items() if "Tests: `tests/" not in text] == []


def test_the_public_names_are_those_of_the_package() -> None:
    [row] = re.findall(r"^\| (`init`.*) \|$", sections("protocol")["2.13"], re.MULTILINE)

    assert sorted(re.findall(r"`(\w+)`", row)) == sorted(otel_ml.__all__)


def test_every_key_on_the_wire_is_described() -> None:
    described = text_of("protocol")
    keys = [value for name, value in vars(attributes).items() if name.isupper() and isinstance(value, str)]
    keys += VALUE_ATTRIBUTES

    assert len(keys) > 40
    assert [key for key in keys if key not in described] == []


def test_every_reduction_is_described() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| .* \| (yes|no) \|$", sections("protocol")["2.8"], re.MULTILINE)
    within = {name: may for names, may in rows for name in re.findall(r"`([^`]+)`", names)}

    assert {name for name in within if not name.startswith("p")} == set(ACROSS)
    assert {name for name, may in within.items() if may == "yes"} == set(WITHIN)


def test_the_versions_of_stored_forms_are_those_of_the_code() -> None:
    told = re.findall(r"\| (\d+) \| `([A-Z]+)` \|$", sections("protocol")["6.7"], re.MULTILINE)
    known = {name: getattr(module, name) for module in (versions, stored) for name in module.__all__ if name.isupper()}

    assert {name: int(version) for version, name in told} == known


def test_the_times_are_those_of_the_engine() -> None:
    told = re.findall(r"^\| (\d+) \| `(\w+)` \|", sections("protocol")["5.11"], re.MULTILINE)
    known = {field.name: getattr(EngineSettings(), field.name) for field in fields(EngineSettings)}
    seconds = {name for name, value in known.items() if name.endswith("_s") and value}

    assert {name: float(value) for value, name in told} == {name: known[name] for name in seconds}


@pytest.mark.parametrize("package", ["otel_ml", "otel_ml._internal", "otel_ml_exporters", "otel_ml_service"])
def test_the_layers_are_those_that_import_linter_holds(package: str) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contract = project.partition(f'\ncontainers = ["{package}"]\n')[2].partition("\n[[")[0]
    layers = ast.literal_eval(contract[contract.index("layers = ") + len("layers = ") :])

    assert len(layers) > 5
    assert "\n".join(layers) in sections("architecture")["6"]


@pytest.mark.parametrize("decision", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=lambda path: path.stem[:4])
def test_a_decision_says_its_reason_and_its_consequences_and_where_it_is_specified(decision: Path) -> None:
    text = decision.read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (.+)$", text, re.MULTILINE))

    assert re.search(r"^Status: .*\]\(\.\./protocol\.md", text, re.MULTILINE)
    assert any(heading.startswith("Decision") for heading in headings)
    assert headings & {"Context", "Why"} or any(heading.startswith("Decision and reason") for heading in headings)
    assert "Consequences" in headings
