"""`wandb.Table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import otel_ml
from otel_ml.compat.tracking.said import not_kept, options_not_kept
from otel_ml.compat.wandb.media import Media

__all__ = ["EvalTable", "Table"]


class Table(Media):
    """Rows under columns; pictures in cells are kept as images beside the table."""

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        **options: Any,
    ) -> None:
        for usual, value in (("optional", True), ("allow_mixed_types", True), ("log_mode", "IMMUTABLE")):
            if options.get(usual) == value:
                del options[usual]  # what holds here always
        options_not_kept(
            "wandb.Table", "a cell has any type, and a table is recorded whole whenever it is logged.", **options
        )
        given = dataframe if dataframe is not None else data if data is not None else rows
        if hasattr(given, "itertuples"):
            self.columns: list[str] = [str(name) for name in given.columns]
            given = given.itertuples(index=False, name=None)
        else:
            self.columns = [str(name) for name in columns or ("Input", "Output", "Expected")]
        self.data: list[list[Any]] = [list(row) for row in (given if given is not None else ())]

    def add_data(self, *data: Any) -> None:
        """Add a row. One of another length, for which W&B raises, is reported and left out."""
        if len(data) != len(self.columns):
            wrong = f"ValueError: this table expects {len(self.columns)} columns: {self.columns}, found {len(data)}"
            not_kept("wandb.Table.add_data()", f"{wrong}. The row is left out.")
            return
        self.data.append(list(data))

    add_row = add_data

    def add_column(self, name: str, data: Sequence[Any], optional: bool = False) -> None:
        """Add a column; a table without rows gets as many as it has values."""
        options_not_kept("wandb.Table.add_column", "a cell has any type, or none.", optional=optional)
        if not self.data:
            self.columns = []
            self.data = [[] for _ in data]
        self.columns.append(str(name))
        for row, value in zip(self.data, data, strict=False):
            row.append(value)

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """Return the values of a column; `convert_to="numpy"` as an array."""
        place = self.columns.index(name)
        values = [row[place] for row in self.data]
        if convert_to == "numpy":
            import numpy as np

            return np.array(values)
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


class EvalTable(Table):
    """A table of an evaluation; kept as any table."""
