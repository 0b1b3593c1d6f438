"""Closed steps → a table in long format: one row for each scalar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters.records import StepRecord

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["load_pyarrow", "merge_tables", "table_of", "write_table"]


def load_pyarrow() -> Any:
    """Import pyarrow.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingDependencyError("Exporter 'parquet'", package=error.name or "pyarrow", extra="parquet") from error
    return pyarrow


def schema() -> Any:
    """Return the columns; `docs/exporters/parquet.md` explains them."""
    pa = load_pyarrow()
    # A number in each row, and each text once: there are few different ones.
    word = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("role", word, nullable=False),
            pa.field("axis", word, nullable=False),
            pa.field("step", pa.int64(), nullable=False),
            pa.field("attempt", pa.int32(), nullable=False),
            pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("name", word, nullable=False),
            pa.field("value", pa.float64(), nullable=False),
            pa.field("amendment", pa.bool_(), nullable=False),
        ]
    )


def table_of(records: Iterable[StepRecord]) -> Any:
    """Return one row for each value of `records`, in their order."""
    # A record of two values is two rows, and all but name and value stand in both.
    rows = [(record, name, value) for record in records for name, value in record.values.items()]
    columns: dict[str, list[object]] = {
        "seq": [record.seq for record, _, _ in rows],
        "role": [record.role for record, _, _ in rows],
        "axis": [record.axis for record, _, _ in rows],
        "step": [record.step for record, _, _ in rows],
        "attempt": [record.attempt for record, _, _ in rows],
        "time": [round(record.time * 1e6) for record, _, _ in rows],
        "name": [name for _, name, _ in rows],
        "value": [float(value) for _, _, value in rows],
        "amendment": [record.amendment for record, _, _ in rows],
    }
    return load_pyarrow().table(columns, schema=schema())


def merge_tables(paths: Sequence[Path]) -> Any:
    """Return the rows of several files as one table."""
    pa = load_pyarrow()
    tables = [pa.parquet.ParquetFile(path).read() for path in paths]
    return pa.concat_tables(tables).unify_dictionaries()


def write_table(table: Any, path: Path) -> None:
    """Write one file."""
    load_pyarrow().parquet.write_table(table, path, compression="zstd")
