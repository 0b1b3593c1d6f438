"""Each wing says in `pyproject.toml` how it is built inside: from its entry down to its leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.jobs import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PACKAGES = ("otel_ml", "exporters/otel_ml_exporters", "service/otel_ml_service")
_FIVE = 5
"""Modules from which on a package has layers: fewer are read at a glance."""


def test_every_package_of_five_modules_says_its_layers() -> None:
    layered = {name for one in contracts("layers") if one.get("exhaustive") for name in one["containers"]}
    independent = {name.removesuffix(".*") for one in contracts("independence") for name in one["modules"]}

    assert {name for name, modules in packages() if len(modules) >= _FIVE} - layered - independent == set()


def test_a_package_of_fewer_modules_has_none() -> None:
    layered = {name for one in contracts("layers") for name in one["containers"]}

    assert {name for name, modules in packages() if len(modules) < _FIVE} & layered == set()


def contracts(kind: str) -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return [one for one in settings["contracts"] if one["type"] == kind]


def packages() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each package, and of the modules and packages in it."""
    for place in _PACKAGES:
        for file in sorted((ROOT / place).rglob("__init__.py")):
            folder = file.parent
            inside = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
            inside += [path.name for path in folder.iterdir() if (path / "__init__.py").exists()]
            yield name_of(folder, ROOT / place), inside


def name_of(folder: Path, package: Path) -> str:
    return ".".join((package.name, *folder.relative_to(package).parts))
