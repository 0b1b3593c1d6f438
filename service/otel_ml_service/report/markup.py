"""HTML from names and texts of others: everything is escaped here, and nowhere else."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TypeGuard

__all__ = [
    "Amount",
    "Markup",
    "cell_table",
    "chart_number",
    "details",
    "joined",
    "picture",
    "script_data",
    "section",
    "tag",
    "text",
    "written_out",
]

_MAY_NOT_BE_PRINTABLE = re.compile(r"\\[ubfr]|\x7f")
"""In JSON of ASCII letters."""


class Markup(str):
    """HTML that may go into a page as it is."""

    __slots__ = ()


class Amount(str):
    """A number with its unit, as people read it: it stands in a table where numbers stand."""

    __slots__ = ()


def text(value: object) -> Markup:
    r"""Return a text, escaped; control characters are written out, line breaks kept.

    Examples:
        >>> text("<b>\x1b")
        '&lt;b&gt;\\x1b'
    """
    return Markup(html.escape(written_out(str(value))))


def written_out(text: str) -> str:
    r"""Return a text whose control characters, and marks that turn the direction, are written out; not line breaks.

    Examples:
        >>> written_out("a\x1b[31m\nb")
        'a\\x1b[31m\nb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def script_data(value: object) -> str:
    r"""Return JSON for the scripts of a page: they show its texts as they are, so these are written out.

    Examples:
        >>> script_data({"names": ["a\x1b[31m", "b"]})
        '{"names":["a\\\\x1b[31m","b"]}'
    """
    found = _json(value)
    # Nearly every page is printable as it is: then its texts are not looked at one by one, nor copied.
    return found if _MAY_NOT_BE_PRINTABLE.search(found) is None else _json(_all_written_out(value))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _all_written_out(value: object) -> object:
    if isinstance(value, str):
        return written_out(value)
    if isinstance(value, dict):
        return {_all_written_out(key): _all_written_out(one) for key, one in value.items()}
    return [_all_written_out(one) for one in value] if isinstance(value, (list, tuple)) else value


def joined(parts: Iterable[str]) -> Markup:
    """Return markup and texts, one after the other; texts are escaped."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def tag(name: str, *content: str, **attributes: object) -> Markup:
    """Return an element; `class_` is `class`, `data_x` is `data-x`; None leaves an attribute out.

    Examples:
        >>> tag("td", "a < b", class_="number")
        '<td class="number">a &lt; b</td>'
    """
    # Python's own words take an underscore behind them: `class_`.
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    named = (f' {key}="{text(value)}"' for key, value in given.items())
    return Markup(f"<{name}{''.join(named)}>{joined(content)}</{name}>")


def section(title: str, *content: str) -> Markup:
    """Return a part of the page with its heading; nothing where there is no content."""
    return tag("section", tag("h2", title), *content) if any(content) else Markup("")


def details(title: str, *content: str) -> Markup:
    """Return what is shown when a person asks for it."""
    return tag("details", tag("summary", title), *content) if any(content) else Markup("")


def cell_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table that scrolls sideways where it is too wide; columns of numbers are aligned to the right."""
    cells = [tuple(row) for row in rows]
    if not cells:
        return Markup("")
    # By column: one text among numbers makes all of it text, so that its cells stand below each other.
    kinds = ["number" if _is_numeric(place, cells) else None for place in range(len(columns))]
    head = [tag("th", name, class_=kind) for name, kind in zip(columns, kinds, strict=True)]
    body = [tag("tr", *(_cell(value, kind) for value, kind in zip(row, kinds, strict=False))) for row in cells]
    return tag("div", tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body)), class_="wide")


def _is_numeric(place: int, rows: Sequence[Sequence[object]]) -> bool:
    # Another program's row may be shorter than the table is wide.
    cells = [row[place] for row in rows if place < len(row)]
    return all(cell is None or isinstance(cell, Amount) or _is_number(cell) for cell in cells)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object, kind: str | None) -> Markup:
    if value is None:
        return tag("td", "")
    shown = value if isinstance(value, Markup) else chart_number(value) if _is_number(value) else str(value)
    return tag("td", shown, class_=kind)


def chart_number(value: float) -> str:
    """Return a number as people read it, in at most about eight characters.

    Examples:
        >>> chart_number(1234567.0), chart_number(12288.0), chart_number(0.123456), chart_number(12), chart_number(-0.0)
        ('1.235e+06', '12,288', '0.1235', '12', '0')
    """
    if isinstance(value, int):
        return f"{value:,}"  # as it is: a step may be larger than what a float tells apart
    # As it is shown: of 9,999.7 four digits would be 1e+04.
    if 9999.5 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    # -0.0 + 0.0 is 0.0.
    return f"{value + 0.0:.4g}"


def picture(png: bytes, width: int, height: int, caption: str) -> Markup:
    """Return an image that is part of the page."""
    source = "data:image/png;base64," + b64encode(png).decode("ascii")
    image = Markup(f'<img src="{source}" width="{int(width)}" height="{int(height)}" alt="{text(caption)}">')
    return tag("figure", image, tag("figcaption", caption))
