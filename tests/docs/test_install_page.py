"""docs/install.md names every extra and every dependency there is, and no other."""

from __future__ import annotations

import re
import sys
from typing import Any

from tests.e2e.jobs import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_every_extra_stands_with_what_it_adds() -> None:
    extras: dict[str, list[str]] = project()["optional-dependencies"]
    rows = {name: [part.strip("` ") for part in adds.split(",")] for name, adds, _ in table("extra")}
    above = list(rows)[: list(rows).index("all")]

    assert rows.pop("all") == ["all of the above"]
    assert rows == {name: packages(adds) for name, adds in extras.items() if name != "all"}
    assert sorted(extras["all"][0].removeprefix("otel-ml[").removesuffix("]").split(",")) == sorted(above)


def test_what_people_type_is_an_extra_that_all_does_not_bring() -> None:
    """A framework is there already, in the version that its owner chose."""
    extras: dict[str, list[str]] = project()["optional-dependencies"]
    frameworks = {"torch", "ray", "lightning", "huggingface", "otlp"}

    assert frameworks <= set(extras)
    assert not frameworks & set(extras["all"][0].removeprefix("otel-ml[").removesuffix("]").split(","))


def test_every_dependency_stands_with_its_use() -> None:
    assert [name for name, _, _ in table("dependency")] == packages(project()["dependencies"])


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def packages(requirements: list[str]) -> list[str]:
    """Return the names of `requirements`, in their order."""
    return [re.split(r"[<>=!]", requirement)[0] for requirement in requirements]


def table(first_column: str) -> list[tuple[str, str, str]]:
    """Return the rows of the table that begins with this column."""
    _, _, text = (ROOT / "docs" / "install.md").read_text().partition(f"| {first_column} |")
    rows = [line.strip("|").split("|") for line in text.partition("\n\n")[0].splitlines()[2:]]
    return [(name.strip(" `"), adds.strip(), use.strip()) for name, adds, use in rows]
