"""Tables as Markdown, which TensorBoard's TEXT tab shows as tables."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from otel_ml_exporters.records import JsonValue

__all__ = ["MOST_ROWS", "markdown_table"]

MOST_ROWS = 1000
"""The browser lays a text out as one page; larger tables freeze it."""

_MARKDOWN = re.compile(r"[\\`*_\[\]|]")
"""What means something within a line."""


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[JsonValue]]) -> str:
    r"""Return a Markdown table of at most `MOST_ROWS` rows, the rest counted below it.

    A cell is data: what is HTML or Markdown in it (generated text often is) is shown as it is written.

    Examples:
        >>> print(markdown_table(["image", "said"], [[3, "a|b *c* <d>"]]))
        | image | said |
        | --- | --- |
        | 3 | a\|b \*c\* &lt;d&gt; |
    """
    lines = [_line(columns), f"|{' --- |' * len(columns)}", *map(_line, rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        lines.append(f"\n{len(rows) - MOST_ROWS:,} more rows are not shown.")
    return "\n".join(lines)


def _line(cells: Sequence[JsonValue]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: JsonValue) -> str:
    plain = html.escape(" ".join(str(value).splitlines()), quote=False)
    return _MARKDOWN.sub(r"\\\g<0>", plain)
