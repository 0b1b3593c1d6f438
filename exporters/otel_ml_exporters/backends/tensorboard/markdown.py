"""Tables as Markdown, which TensorBoard's TEXT tab shows as tables."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml_exporters.records import JsonValue

__all__ = ["MOST_ROWS", "markdown_table"]

MOST_ROWS = 1000
"""The browser lays a text out as one page; larger tables freeze it."""


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[JsonValue]]) -> str:
    r"""Return a Markdown table of at most `MOST_ROWS` rows, the rest counted below it.

    Examples:
        >>> print(markdown_table(["image", "said"], [[3, "a|b"]]))
        | image | said |
        | --- | --- |
        | 3 | a\|b |
    """
    lines = [_line(columns), _line(["---"] * len(columns)), *map(_line, rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        lines.append(f"\n{len(rows) - MOST_ROWS:,} more rows are not shown.")
    return "\n".join(lines)


def _line(cells: Sequence[JsonValue]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: JsonValue) -> str:
    return " ".join(str(value).replace("|", "\\|").splitlines())
