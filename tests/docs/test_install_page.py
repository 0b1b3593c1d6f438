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

    assert rows.pop("all") == ["all of the above but `torch"], "The row of `all` says what it leaves out."
    assert rows == {name: packages(adds) for name, adds in extras.items() if name != "all"}
    assert extras["all"] == [f"otel-ml[{','.join(name for name in extras if name not in {'torch', 'all'})}]"]


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
