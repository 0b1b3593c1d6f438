"""What commands print: rich in a terminal, plain aligned text in a pipe, no color under NO_COLOR."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from otel_ml.printable import printable
from otel_ml_service.stored_runs.shortened_name import shortened as shortened_name

__all__ = ["Screen", "screen"]

_PLAIN_WIDTH = 120
"""Columns of text that no terminal limits; as wide as a line of code."""

_GAP = "  "
"""Between two columns of a table."""


_WIDEST_CELL = 60
"""Columns of plain text up to which rows are aligned: one long name does not push the figures of all others away."""


class Screen:
    """Standard output and standard error of a command.

    Args:
        beside_json: standard output is for a program (`--json`); a person reads all of it on standard error.
    """

    def __init__(self, *, beside_json: bool = False) -> None:
        # rich reads NO_COLOR, TERM, COLUMNS and whether it is a terminal itself.
        file = sys.stderr if beside_json else sys.stdout
        # rich takes 80 columns where it finds no terminal.
        width = None if file.isatty() or os.environ.get("COLUMNS") else _PLAIN_WIDTH
        self.out = Console(file=file, highlight=False, soft_wrap=True, width=width)
        self.err = Console(file=sys.stderr, highlight=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at what is printed."""
        return self.out.is_terminal

    def line(self, text: str = "", style: str | None = None) -> None:
        """Print one line; what is not printable is written out."""
        self.out.print(Text(printable(text), style=style or ""))

    def hanging(self, begin: str, text: str, style: str | None = None) -> None:
        """Print `text` after `begin`; in a terminal what does not fit goes on below its own beginning."""
        if not self.is_terminal:
            self.line(begin + text, style=style)
            return
        # An address or a command is to be copied: it is not broken, neither at a hyphen nor where it is too long.
        lines = textwrap.wrap(
            printable(text),
            max(self.out.width - len(begin), 20),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for number, line in enumerate(lines or [""]):
            self.line((begin if number == 0 else " " * len(begin)) + line, style=style)

    def note(self, text: str) -> None:
        """Print one line for the person, not for the pipe: on standard error."""
        self.err.print(Text(printable(text), style="dim"))

    @contextmanager
    def working(self) -> Iterator[Callable[[str], None]]:
        """Show what a command is at and for how long: a line of a terminal that is gone afterwards, nothing in a pipe.

        Yields a function that is told what comes next.
        """
        from rich.progress import Progress, TextColumn, TimeElapsedColumn  # most commands are over before it is loaded

        columns = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        with Progress(
            *columns, console=self.err, transient=True, redirect_stdout=False, disable=not self.err.is_terminal
        ) as bar:  # standard output may be a program's: rich would write it to the terminal
            task = bar.add_task("", total=None, visible=False)
            yield lambda text: bar.update(task, description=printable(text), visible=True, refresh=True)

    def width_beside(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
        """Return how wide one more column of a table may be in this terminal."""
        widths = (max(map(cell_len, cells)) for cells in zip(columns, *rows, strict=True))
        return self.out.width - sum(width + len(_GAP) for width in widths)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        right: Sequence[str] = (),
        shortened: Sequence[str] | None = None,
        optional: Sequence[str] = (),
    ) -> None:
        """Print rows under a header; in a pipe with whole cells.

        Args:
            columns: the header.
            rows: a cell for each column.
            right: columns of numbers.
            shortened: columns of names, whose middle is left out where the terminal is too narrow, so that each row is
                one line; without them cells go on in a further line.
            optional: columns that are left out, the first one first, where the others do not fit.
        """
        cells = [[printable(cell) for cell in row] for row in rows]
        if not self.is_terminal:
            self._plain_table(columns, cells, right)
            return
        # Only where each row is to be one line: other tables may fold their cells.
        if shortened is not None:
            columns, cells = _fitted(columns, cells, self.out.width, shortened, optional)
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in columns:
            table.add_column(
                column,
                justify="right" if column in right else "left",
                overflow="fold",
                no_wrap=shortened is not None,
            )
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        self.out.print(table)

    def _plain_table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
        lines = [columns, *rows]
        # A longer cell is neither padded nor cut: a text times a negative number is empty.
        widths = [max(min(cell_len(line[i]), _WIDEST_CELL) for line in lines) for i in range(len(columns))]
        for line in lines:
            padded = [
                f"{' ' * (width - cell_len(cell))}{cell}"
                if column in right
                else f"{cell}{' ' * (width - cell_len(cell))}"
                for cell, width, column in zip(line, widths, columns, strict=True)
            ]
            self.out.print(Text(_GAP.join(padded).rstrip()))


def _fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, names: Sequence[str], optional: Sequence[str]
) -> tuple[Sequence[str], list[list[str]]]:
    """Return the columns that fit into `width`, and the rows in which `names` are as short as that needs."""
    widths = {column: max(map(cell_len, cells)) for column, *cells in zip(columns, columns, *rows, strict=True)}
    kept = list(columns)
    for column in optional:
        # What the columns need when names are as short as they may be.
        least = sum(min(widths[one], _SHORTEST_NAME) if one in names else widths[one] for one in kept)
        if column in kept and least + len(_GAP) * (len(kept) - 1) > width:
            kept.remove(column)
    space = width - len(_GAP) * (len(kept) - 1) - sum(widths[one] for one in kept if one not in names)
    limits = _shares({one: widths[one] for one in kept if one in names}, space)
    at = [columns.index(one) for one in kept]
    return kept, [[_shortened(row[index], limits.get(columns[index])) for index in at] for row in rows]


def _shares(widths: Mapping[str, int], space: int) -> dict[str, int]:
    """Return how wide columns of names may be: the widest is made narrower, as long as they do not fit."""
    limits = dict(widths)
    # One at a time, so that columns that are as wide as each other stay so, but for one.
    while limits and sum(limits.values()) > space:
        widest = max(limits, key=lambda one: limits[one])
        if limits[widest] <= _SHORTEST_NAME:
            break
        limits[widest] -= 1
    return limits


def _shortened(cell: str, limit: int | None) -> str:
    return cell if limit is None else shortened_name(cell, limit)


_SHORTEST_NAME = 12
"""Characters of a name that tell it from others as a rule."""


def screen(*, beside_json: bool = False) -> Screen:
    """Return a screen on the streams as they are now (tests replace them)."""
    return Screen(beside_json=beside_json)
