"""Records as a training job makes them; each is a function of its `seq`, so every process knows all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from otel_ml_exporters.contract.case import Point
from otel_ml_exporters.records import (
    HistogramValue,
    Params,
    Record,
    RunInfo,
    RunStatus,
    StepRecord,
    Summary,
    Table,
    Text,
)

__all__ = ["AT", "Stream", "every_kind", "points", "row", "rows", "run_in"]

AT = 1_700_000_000.0
"""When the run began, in seconds since the epoch."""


def run_in(folder: Path) -> RunInfo:
    """Return a run whose folder is laid out as the service does it: `<OTEL_ML_DIR>/<experiment>/<id>`."""
    place = folder / "runs" / "contract" / "01JCONTRACT"
    place.mkdir(parents=True, exist_ok=True)
    return RunInfo(id=place.name, experiment="contract", name=place.name, dir=place, started_at=AT)


def row(seq: int, step: int, values: dict[str, float], *, attempt: int = 0, amendment: bool = False) -> StepRecord:
    """Return the row of a step of the trainer's axis `step`."""
    return StepRecord(seq, "trainer", "step", step, attempt, AT + seq, values, amendment=amendment)


def rows(first: int, last: int) -> list[Record]:
    """Return the rows `first` to `last` of a job: the step is the `seq`."""
    # Values that are not round: what stores fewer digits than a double is found out.
    return [row(seq, seq, {"loss": 1 / seq, "time/step": seq / 3}) for seq in range(first, last + 1)]


def every_kind(first: int) -> list[Record]:
    """Return one record of each kind that needs no library to be made, from `seq` `first` on."""
    made: Sequence[Callable[[int], Record]] = (
        lambda seq: Params(seq, AT, {"lr": 0.1, "net": {"layers": [1, 2]}}),
        lambda seq: Text(seq, AT, "sample", "step", 1, "a text, with ünïcode"),
        lambda seq: Table(seq, AT, "wrong", "step", 1, ("said", "sure"), ((3, 0.25), (8, None))),
        lambda seq: HistogramValue(seq, AT, "weights", "step", 1, (-1.0, 0.0, 2.5), (3.0, 7.0)),
        lambda seq: Summary(seq, AT, {"test/accuracy": 0.9}),
        lambda seq: RunStatus(seq, AT, "running"),
    )
    return [make(seq) for seq, make in enumerate(made, start=first)]


def points(records: Iterable[Record], stored: Callable[[float], float]) -> list[Point]:
    """Return what a backend should have of `records`."""
    return [
        (name, record.axis, record.step, stored(value))
        for record in records
        if isinstance(record, StepRecord)
        for name, value in record.values.items()
    ]


class Stream:
    """A source of as many rows as are asked for, as a pipeline reads the outbox of a run."""

    def __init__(self, last: int) -> None:
        self.last_seq = last
        self.first_seq = 1

    def read(self, after: int, limit: int) -> Sequence[Record]:
        """Return the rows after `after`."""
        return rows(after + 1, min(self.last_seq, after + limit))

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        """Do nothing: no row comes later."""
