"""`wandb.JoinedTable`: two tables that are joined where they are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.media import Media
from otel_ml.compat.wandb.table import Table

__all__ = ["JoinedTable"]


class JoinedTable(Media):
    """The rows of two tables that have the same key, and those of either whose key the other has not.

    A table that is the path of one in an artifact is not looked up: W&B's page alone does that.

    Args:
        table1: whose rows come first.
        table2: whose columns stand behind; one that the first has too is called `<name>.2`.
        join_key: the name of the column with the keys, or that in each of the tables.
    """

    def __init__(self, table1: Any, table2: Any, join_key: str | Sequence[str]) -> None:
        self._tables = table1, table2
        self._keys = (join_key, join_key) if isinstance(join_key, str) else _names(join_key)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record the joined rows as a table; reported, and nothing, where there is no such key or no table."""
        first, second = self._tables
        if not (isinstance(first, Table) and isinstance(second, Table)):
            wrong = "ValueError: JoinedTable joins a wandb.Table with another one"
            not_kept(f"wandb.JoinedTable in {name!r}", f"{wrong}. Nothing of it is recorded.")
        # Looked at here, and not when it is made: the tables may get their columns until they are logged.
        elif len(self._keys) != 2 or self._keys[0] not in first.columns or self._keys[1] not in second.columns:
            wrong = "ValueError: join_key is a column of both tables, or a column of each"
            not_kept(f"wandb.JoinedTable(join_key={safe_repr(self._keys, 60)})", f"{wrong}. Nothing of it is recorded.")
        else:
            _joined(first, second, *self._keys).keep(name, step, axis)


def _names(join_key: Any) -> tuple[str, ...]:
    # Anything else is said where the table is recorded: it is not two names.
    return tuple(join_key) if isinstance(join_key, Sequence) else ()


def _joined(first: Table, second: Table, key: str, other_key: str) -> Table:
    place, other_place = first.columns.index(key), second.columns.index(other_key)
    names = [name for number, name in enumerate(second.columns) if number != other_place]
    columns = [*first.columns, *(f"{name}.2" if name in first.columns else name for name in names)]
    joined = Table(columns)
    joined.data = list(_rows(first, second, place, other_place))
    return joined


def _rows(first: Table, second: Table, place: int, other_place: int) -> Iterator[list[Any]]:
    # Several rows of the second table may have one key: each is a row of the result.
    by_key: dict[Any, list[list[Any]]] = {}
    for other in second.data:
        by_key.setdefault(_hashable(other[other_place]), []).append(other)
    nothing = [[None] * len(second.columns)]
    for row in first.data:
        for other in by_key.get(_hashable(row[place]), nothing):
            yield [*row, *_without(other, other_place)]
    # An outer join: rows of the second table whose key the first one lacks follow at the end.
    known = {_hashable(row[place]) for row in first.data}
    for other in (other for key, others in by_key.items() if key not in known for other in others):
        # The key stands in the first table's column, as the second one's is left out of the result.
        alone: list[Any] = [None] * len(first.columns)
        alone[place] = other[other_place]
        yield [*alone, *_without(other, other_place)]


def _hashable(cell: Any) -> Any:
    try:
        hash(cell)
    except TypeError:
        return repr(cell)
    return cell


def _without(row: Sequence[Any], place: int) -> list[Any]:
    return [cell for number, cell in enumerate(row) if number != place]
