"""Merge `late.otlp` into a run's records: what came too late for the service still comes in time for a replay.

The fold state of those steps is gone, so a late value can join one that was exported only where two values make
one without it (`sum`, `count`, `min`, `max` over all records). A name the step did not have is simply added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.naming import metric_name, reduced_name
from otel_ml_service.aggregation.observation import Sent, ThirdPartyPoints
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.live_runs.late_file import read_late
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.receiver.partial_success import UndecodableError

__all__ = ["Merged", "with_late"]

_Place = tuple[str, str, int]
"""(role, axis, step)."""

_Operation = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Merged:
    """A run's records with what came late.

    Attributes:
        records: as many as there were, `seq` unchanged: a backend that holds them already does not get them again.
        values: how many late values are in them.
        left: names of late values that could not be merged.
        torn: bytes at the end of the file that are not a whole point: it was cut off while it was written.
        damaged: requests that a disk has changed.
    """

    records: Sequence[Record]
    values: int = 0
    left: tuple[str, ...] = ()
    torn: int = 0
    damaged: int = 0


def with_late(records: Sequence[Record], path: Path) -> Merged:
    """Return `records` with the points of `late.otlp` merged; unchanged where there is no such file."""
    found = read_late(path)
    decoder = Decoder()
    requests = [_points(decoder, body) for body in found.bodies]
    damaged = requests.count(None)
    sent = chain.from_iterable(filter(None, requests))
    late = [point for point in sent if point.step is not None and point.axis is not None]
    if not late:
        return Merged(records, torn=found.torn, damaged=damaged)
    operations = dict(_operations(late))
    # A step may have several rows: of attempts, and of corrections.
    rows: dict[_Place, list[int]] = {}
    for index, record in enumerate(records):
        if isinstance(record, StepRecord):
            rows.setdefault((record.role, record.axis, record.step), []).append(index)
    merged = list(records)
    values, left = 0, []
    for row in _reduced(late):
        where = rows.get((row.role, row.axis, row.step), ())
        for name, value in row.values.items():
            if _merge(merged, where, name, value, operations.get(name)):
                values += 1
            else:
                left.append(name)
    return Merged(merged, values, tuple(dict.fromkeys(left)), found.torn, damaged)


def _points(decoder: Decoder, body: bytes) -> list[Sent] | None:
    """Return what a request holds that may be merged; None where a disk has changed it, and not its length."""
    try:
        observations = decoder.protobuf("metrics", body).observations
    except UndecodableError:
        return None
    every = chain.from_iterable(observations.values())
    return [one for one in every if isinstance(one, Sent) and not _is_cumulative(one)]


def _is_cumulative(point: Sent) -> bool:
    """Whether its worth depends on the point before, which is not in the file."""
    return isinstance(point, ThirdPartyPoints) and point.temporality == "cumulative"


def _reduced(late: Sequence[Sent]) -> Iterator[StepRecord]:
    """Reduce the late points across writers as the service does."""
    engine = Engine(late[0].writer.experiment, EngineSettings())
    for point in late:
        engine.observe(point, 0.0)
    engine.advance(EngineSettings().end_silence_s)  # nobody else comes: everything closes
    for record in engine.take().records:
        if isinstance(record, StepRecord):
            own = {name: value for name, value in record.values.items() if RESERVED_PREFIX not in name}
            yield replace(record, values=own)


def _operations(late: Sequence[Sent]) -> Iterator[tuple[str, _Operation]]:
    """Yield published name → how values of it become one without fold state, of the reductions that can."""
    for point in late:
        reduction = point.reduction
        if reduction is None or reduction.within is not None or reduction.over is not None:
            continue
        if isinstance(point, ThirdPartyPoints) and point.kind == "gauge" and reduction.sums_all:
            continue  # its process may be in the sum already
        for key in point.partials.series:
            series = metric_name(
                point.writer.role, point.axis or "", key.name, key.attributes, with_role=point.writer.with_role
            )
            for place, row in enumerate(reduction.rows):
                if row.joined is not None:
                    yield reduced_name(series, reduction, place, False), row.joined


def _merge(records: list[Record], where: Sequence[int], name: str, value: float, operation: _Operation | None) -> bool:
    """Put a value into the newest row of its step that has the name, else into the step's first row of that attempt."""
    rows = [(index, row) for index in where if isinstance(row := records[index], StepRecord)]
    if not rows:
        return False
    newest = max(row.attempt for _, row in rows)
    rows = [(index, row) for index, row in rows if row.attempt == newest]
    # A row that was corrected stands there twice: the newer one has the value that counts.
    index, row = next(((index, row) for index, row in reversed(rows) if name in row.values), rows[0])
    if name in row.values:
        if operation is None:
            return False
        value = operation(row.values[name], value)
    records[index] = replace(row, values={**row.values, name: value})
    return True
