"""Rows: what one `log()` of several numbers records, as one record."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml._internal.native import native
from otel_ml._internal.series.definition import DEFINITIONS, Series

__all__ = ["FEWEST", "WIDE", "Row", "Table"]

WIDE = 5
"""Names from which a row costs less than a record of each, in Python, and where it is folded."""

FEWEST = WIDE if native is None else 1
"""Names from which a row costs less than a record of each in compiled `log()`, which looks none of them up."""


class Row:
    """Names that are logged together, in their order: what a record of all their values points to.

    Most programs log the same names step after step. Their series are then looked up once, and the training thread
    touches none of them: with cold caches that is most of what a step of a hundred values costs (ADR 0017).

    Attributes:
        series: of each name.
        floats: the type of each value, where none has to be converted.
    """

    __slots__ = ("_parts", "_weighted", "floats", "series")

    def __init__(self, series: Sequence[Series]) -> None:
        self.series: tuple[Series, ...] = tuple(series)
        self.floats: list[type[float]] = [float] * len(series)
        # No count of series with a weight: the first `is_plain()` looks at all of them.
        self._weighted = -1
        self._parts: dict[tuple[bool, ...], tuple[Row, Row]] = {}

    def split(self, is_first: tuple[bool, ...]) -> tuple[Row, Row]:
        """Return the row of those names for which `is_first` is true, and that of the others."""
        parts = self._parts.get(is_first)
        if parts is None:
            # Once for each pattern of tensors and numbers: a program logs the same ones step after step.
            first = [series for series, is_it in zip(self.series, is_first, strict=True) if is_it]
            second = [series for series, is_it in zip(self.series, is_first, strict=True) if not is_it]
            parts = self._parts[is_first] = (Row(first), Row(second))
        return parts

    def is_plain(self) -> bool:
        """Whether of no value the order or the weight matters, as far as the fold has come, which asks."""
        if self._weighted != DEFINITIONS.weighted:  # what is not special becomes so by a first weight only
            if any(series.special for series in self.series):
                return False
            self._weighted = DEFINITIONS.weighted
        return True


_OF_A_ROW = 4
"""Names whose memory is about that of a row without any."""


class Table:
    """What is known of names that are logged with the same options.

    Attributes:
        series: by name.
        rows: by the names that were logged together.
    """

    __slots__ = ("_kept", "rows", "series")

    MOST = 100_000
    """Rows of a program whose names change from call to call are not kept for ever: 20,000 of one name, 1,000 of 96."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.rows: dict[tuple[str, ...], Row] = {}
        self._kept = 0

    def add_row(self, names: tuple[str, ...], series: Sequence[Series]) -> None:
        """Know these names as a row from now on."""
        # `forget_names()` has emptied the rows and left the count.
        if not self.rows or self._kept > self.MOST:
            self.rows.clear()
            self._kept = 0
        self._kept += _OF_A_ROW + len(names)
        self.rows[names] = Row(series)
