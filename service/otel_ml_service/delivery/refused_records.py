"""Find the records of a batch that a backend refuses for good, and let it have all the others.

A refused batch is halved until a record is alone. Where the backend says which values of a record it does not take,
the record goes without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from otel_ml_exporters.records import Record, StepRecord, Summary

__all__ = ["Refusal", "Refused", "export_all_but_refused"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a backend does not take a batch.

    Attributes:
        reason: for a person.
        names: of the values it does not take; empty where it refuses records as a whole.
    """

    reason: str
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Refused:
    """What is set aside.

    Attributes:
        seq: of its record.
        what: for a person, such as "'loss' at step 7".
        values: how many there are in it, without those that were refused by name; 1 for a record of another kind.
    """

    seq: int
    what: str
    values: int
    reason: str


class Export(Protocol):
    """Hands records to the exporter."""

    def __call__(self, records: Sequence[Record], *, is_last_word: bool) -> Refusal | None:
        """Return why they will never be taken, or None; `is_last_word`: they are set aside, or halved, after it."""


def export_all_but_refused(
    records: Sequence[Record], export: Export, advance: Callable[[int], None]
) -> Iterator[Refused]:
    """Export `records`, in their order, and yield what is refused.

    Args:
        records: one at least.
        export: of the exporter.
        advance: told up to which `seq` everything is stored or yielded.
    """
    yield from _sifted(records, export, advance, is_whole=True)


def _sifted(
    records: Sequence[Record], export: Export, advance: Callable[[int], None], *, is_whole: bool = False
) -> Iterator[Refused]:
    # In a loop: a backend may name one value at a time, and a row has thousands.
    while (refusal := export(records, is_last_word=is_whole or len(records) == 1)) is not None:
        # First what the backend names: a row of 500 values with one bad name loses that value, not the row.
        without = [_without(record, refusal.names) for record in records]
        if all(kept is record for kept, record in zip(without, records, strict=True)):
            break
        # Of all records of the batch: a name that a backend refuses is refused in each of them.
        for record in records:
            yield from _values_of(record, refusal)
        records = without
    if refusal is None:
        advance(records[-1].seq)
    elif len(records) == 1:
        yield Refused(records[0].seq, _shown(records[0]), _count(records[0]), refusal.reason)
        advance(records[0].seq)
    else:
        # Halving finds one bad record among n in about 2 log2 n exports, and the good ones keep their order, which
        # backends that draw lines need.
        middle = len(records) // 2
        yield from _sifted(records[:middle], export, advance)
        yield from _sifted(records[middle:], export, advance)


def _without(record: Record, names: frozenset[str]) -> Record:
    """Return a record without some of its values; the record itself where it has none of them."""
    if not isinstance(record, (StepRecord, Summary)) or names.isdisjoint(record.values):
        return record
    return replace(record, values={name: value for name, value in record.values.items() if name not in names})


def _values_of(record: Record, refusal: Refusal) -> Iterator[Refused]:
    if isinstance(record, (StepRecord, Summary)):
        where = f" of {_shown(record)}"
        for name in sorted(refusal.names & record.values.keys()):
            yield Refused(record.seq, f"{name!r}{where}", 1, refusal.reason)


def _count(record: Record) -> int:
    return len(record.values) if isinstance(record, (StepRecord, Summary)) else 1


def _shown(record: Record) -> str:
    if isinstance(record, StepRecord):
        return f"{record.axis} {record.step}"
    name = getattr(record, "name", "")
    kind = type(record).__name__.lower()
    return f"{kind} {name!r}" if name else kind
