"""Where in the documentation tables of measured quality stand: between two comments, the first one with the command."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["CHANGES", "DOCS", "JOBS", "ROLES", "TRACES", "table_of", "write"]

DOCS = Path(__file__).parents[2] / "docs" / "diagnostics"

JOBS, ROLES, TRACES = ("stragglers.md", "jobs"), ("stragglers.md", "roles"), ("stragglers.md", "traces")
CHANGES = ("why.md", "changes")
"""Pages of that folder, and the names of the places."""


def write(place: tuple[Path, str], command: str, table: str) -> None:
    """Put a table, and the command that printed it, in its place.

    Raises:
        ValueError: the page has no such place, or several.
    """
    page, name = place
    text, count = _between(name).subn(lambda _: _block(name, command, table), page.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{page.name} has {count} places for {name!r}. Expected one: {_block(name, '…', '…')!r}.")
    page.write_text(text, encoding="utf-8")


def table_of(place: tuple[Path, str]) -> tuple[str, str]:
    """Return the command and the table that stand in a place."""
    page, name = place
    [(command, table)] = _between(name).findall(page.read_text(encoding="utf-8"))
    return command, table


def _block(name: str, command: str, table: str) -> str:
    return f"<!-- {name}: {command} -->\n\n{table.strip()}\n\n<!-- end of {name} -->"


def _between(name: str) -> re.Pattern[str]:
    return re.compile(rf"<!-- {name}: (.*?) -->\n\n(.*?)\n\n<!-- end of {name} -->", re.DOTALL)
