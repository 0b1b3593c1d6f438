"""`wandb.Table`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.wandb.media import Image, Media

__all__ = ["EvalTable", "Table"]


_AS_ALWAYS = (("optional", True), ("allow_mixed_types", True), ("log_mode", "IMMUTABLE"), ("log_mode", "MUTABLE"))
"""Options that ask for what holds here always."""

_UNSAID = ("Input", "Output", "Expected")

_LOG_MODES = ("IMMUTABLE", "MUTABLE", "INCREMENTAL")

_JOINED = "the column is kept as it is; tables are joined where they are read."


class Table(Media):
    """Rows under columns; pictures in cells are kept as images beside the table.

    Attributes:
        MAX_ROWS: W&B's limits, which programs raise; here a table has all its rows.
    """

    MAX_ROWS = 10_000
    MAX_ARTIFACT_ROWS = 200_000

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        **options: Any,
    ) -> None:
        if options.get("log_mode", "IMMUTABLE") not in _LOG_MODES:
            wrong = f"AssertionError: it is one of {', '.join(_LOG_MODES)}. The table is recorded as always."
            # Taken out of the options, or it would be said again below.
            not_kept(f"wandb.Table(log_mode={safe_repr(options.pop('log_mode'))})", wrong)
        options_not_kept(
            "wandb.Table",
            "a cell has any type, and a table is recorded whole whenever it is logged.",
            **{name: value for name, value in options.items() if (name, value) not in _AS_ALWAYS},
        )
        if columns is not None and (isinstance(columns, str) or not hasattr(columns, "__iter__")):
            wrong = "AssertionError: columns are a list of names. Those of a table of which nothing is said are taken."
            not_kept(f"wandb.Table(columns={safe_repr(columns, 40)})", wrong)
            columns = None
        if columns is not None and _are_rows(columns):
            not_kept("wandb.Table(columns=…)", "AssertionError: columns are names. What was given is taken as data=….")
            columns, data = None, columns if data is None else data
        if dataframe is not None and not hasattr(dataframe, "itertuples"):
            not_kept("wandb.Table(dataframe=…)", "AssertionError: it is not a data frame. It is taken as data=….")
        given = dataframe if dataframe is not None else data if data is not None else rows
        if hasattr(given, "itertuples"):
            self.columns: list[str] = [str(name) for name in given.columns]
            given = given.itertuples(index=False, name=None)
        else:
            # W&B's own names for a table of which nothing is said; one that begins with none has none.
            self.columns = list(map(str, _UNSAID if columns is None else columns))
        self.data: list[list[Any]] = []
        for row in _rows(given):
            # Nobody has said how many cells a row has: a data frame's fit anyway, and W&B's three names are only a
            # default.
            if columns is None:
                self.data.append(row)
            else:
                self.add_data(*row)

    def add_data(self, *data: Any) -> None:
        """Add a row. One of another length, for which W&B raises, is reported and left out."""
        if len(data) != len(self.columns):
            wrong = f"ValueError: this table expects {len(self.columns)} columns: {self.columns}, found {len(data)}"
            not_kept("wandb.Table.add_data()", f"{wrong}. The row is left out.")
            return
        self.data.append(list(data))

    add_row = add_data

    def add_column(self, name: str, data: Sequence[Any], optional: bool = False) -> None:
        """Add a column; a table without columns or rows gets as many rows as it has values.

        One of another length, or whose name is there, for which W&B raises, is reported and left out.
        """
        options_not_kept("wandb.Table.add_column", "a cell has any type, or none.", optional=optional)
        wrong = ""
        if _are_no_values(data):
            wrong = "AssertionError: expected a sequence of values"
        elif not self.data or not self.columns:
            # Also where there are columns and no rows, as W&B's three default names: they are of nothing.
            self.columns, self.data = [], [[] for _ in data]
        elif str(name) in self.columns:
            wrong = "AssertionError: expected another name than those there are"
        elif len(data) != len(self.data):
            wrong = f"AssertionError: Expected length {len(self.data)}, found {len(data)}"
        if wrong:
            not_kept(f"wandb.Table.add_column({str(name)!r})", f"{wrong}. The column is left out.")
            return
        self.columns.append(str(name))
        for row, value in zip(self.data, data, strict=True):
            row.append(value)

    def add_computed_columns(self, fn: Callable[[int, dict[str, Any]], Mapping[str, Any]]) -> None:
        """Add the columns that `fn(number, row)` returns for each row, where a row is column → value."""
        found: dict[str, list[Any]] = {}
        # Column by column, so that one whose values are fewer than the rows is reported by `add_column()`.
        for number, row in self.iterrows():
            computed = fn(number, dict(zip(self.columns, row, strict=False)))
            if not isinstance(computed, Mapping):
                wrong = f"AssertionError: fn returns column → value, not a {type(computed).__name__}"
                not_kept("wandb.Table.add_computed_columns()", f"{wrong}. No column is added.")
                return
            for name, value in computed.items():
                found.setdefault(name, []).append(value)
        for name, values in found.items():
            self.add_column(name, values)

    def get_index(self) -> list[int]:
        """Return the numbers of the rows."""
        return list(range(len(self.data)))

    def index_ref(self, index: int) -> int:
        """Return the number of a row."""
        return index

    def set_pk(self, col_name: str) -> None:
        """Say that no backend joins tables."""
        not_kept(f"wandb.Table.set_pk({col_name!r})", _JOINED)

    def set_fk(self, col_name: str, table: Table, table_col: str) -> None:
        """Say that no backend joins tables."""
        del table, table_col
        not_kept(f"wandb.Table.set_fk({col_name!r})", _JOINED)

    def cast(self, col_name: str, dtype: Any, optional: bool = False) -> None:
        """Do nothing: a cell has any type."""
        del col_name, dtype, optional

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """Return the values of a column; `convert_to="numpy"` as an array. An unknown one is said, and empty."""
        column = str(name)
        if column not in self.columns:
            wrong = f"AssertionError: expected one of the columns {self.columns}"
            not_kept(f"wandb.Table.get_column({safe_repr(name, 40)})", f"{wrong}. It has no values.")
        values = [row[self.columns.index(column)] for row in self.data if column in self.columns]
        if convert_to == "numpy":
            import numpy as np

            return np.array([value.to_data_array() if isinstance(value, Image) else value for value in values])
        return values

    def get_dataframe(self) -> Any:
        """Return the table as a pandas DataFrame."""
        import pandas as pd  # type: ignore[import-untyped] # its stubs are another package

        return pd.DataFrame(self.data, columns=self.columns)

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Iterate over (number, row)."""
        return iter(enumerate(self.data))

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and (self.columns, self.data) == (other.columns, other.data)

    def __hash__(self) -> int:
        return id(self)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record the table as it is now."""
        rows = [
            [self._cell(name, self._column(place), number, cell, step, axis) for place, cell in enumerate(row)]
            for number, row in enumerate(self.data)
        ]
        otel_ml.log_table(name, rows, self.columns, step=step, axis=axis)

    def _column(self, place: int) -> str:
        return self.columns[place] if place < len(self.columns) else str(place)

    def _cell(self, name: str, column: str, number: int, cell: Any, step: int | None, axis: str | None) -> Any:
        if not isinstance(cell, Media):
            return cell
        shown = f"{name}/{column}/{number}"
        cell.keep(shown, step, axis)
        return shown


def _rows(given: Any) -> list[list[Any]]:
    """Return rows; said, with W&B's error, and none, where it is something else."""
    if given is None:
        return []
    if isinstance(given, (str, Mapping)) or not hasattr(given, "__iter__"):
        not_kept(f"wandb.Table(data={safe_repr(given, 40)})", "AssertionError: data are a list of rows. It has none.")
        return []
    try:
        # A row that has no cells, such as 5, is a TypeError.
        return [list(row) for row in given]
    except TypeError as error:
        not_kept(f"wandb.Table(data={safe_repr(given, 40)})", f"TypeError: a row is a list of cells: {error}.")
        return []


def _are_no_values(data: Any) -> bool:
    # An iterator has no length, and an array without dimensions has none that can be asked for.
    return isinstance(data, str) or not hasattr(data, "__len__") or getattr(data, "shape", None) == ()


def _are_rows(columns: Any) -> bool:
    """Whether rows were given in the place of the names of columns."""
    return hasattr(columns, "itertuples") or any(not isinstance(name, (str, int)) for name in columns)


class EvalTable(Table):
    """A table of an evaluation; kept as any table."""
