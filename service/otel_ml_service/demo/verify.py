"""Compares what the backends hold with what was recorded: the last value of every (series, axis, step)."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from otel_ml_exporters.records import Record, StepRecord
from otel_ml_exporters.registry import exporter_class
from otel_ml_service.delivery.self_telemetry_filter import Selection, everything, selection_of
from otel_ml_service.demo.stored import READERS, Point, Stored
from otel_ml_service.env import FULL, SELF
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import SeriesName, history

__all__ = ["Comparison", "compare", "float32"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one backend holds, against what was recorded.

    Attributes:
        points: points (series, step) whose last value is identical.
        different: points that are missing, or have another last value.
        extra: values beyond one a point.
        expected_extra: values that were amended, or recorded again by a restarted job.
    """

    backend: str
    points: int
    different: Sequence[Point]
    extra: int
    expected_extra: int

    @property
    def is_identical(self) -> bool:
        """Whether the backend holds exactly what was recorded."""
        return not self.different and self.extra == self.expected_extra


def float32(value: float) -> float:
    """Return the nearest float32; what is beyond its range is infinite.

    Examples:
        >>> float32(1e9 + 7), float32(1e300)
        (1000000000.0, inf)
    """
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _mlflow(value: float) -> float:
    """Return what MLflow's SQL stores keep: infinity as the largest double."""
    return math.copysign(1.7976931348623157e308, value) if math.isinf(value) else value


_STORED_AS: Mapping[str, Callable[[float], float]] = {"tensorboard": float32, "mlflow": _mlflow}


def compare(backend: str, run: RunFolder, records: Sequence[Record]) -> Comparison:
    """Read `backend` and compare it with the run's records.

    Raises:
        NotStoredError: the backend does not hold the run.
    """
    reference = history(records)
    wanted = _wanted(records, _selection(backend, records))
    stored = READERS[backend](run, reference)
    # What the backend makes of a double, so that what is compared is what it should have.
    as_stored = _STORED_AS.get(backend, float)
    different = [point for point, value in wanted.last.items() if not _same(stored.last.get(point), as_stored(value))]
    # What a backend has that was not recorded is as wrong as what it lacks.
    different += [point for point in stored.last if point not in wanted.last]
    return Comparison(
        backend=backend,
        points=len(wanted.last) - len(different),
        different=different,
        extra=stored.extra,
        expected_extra=wanted.extra,
    )


def _selection(backend: str, records: Sequence[Record]) -> Selection:
    """Return what of a record a backend gets: of otel_ml's own account most do not get all."""
    if exporter_class(backend).keeps_self_telemetry or SELF.read().value == FULL:
        return everything
    return selection_of(records)


def _wanted(records: Sequence[Record], select: Selection) -> Stored:
    """Return what a backend has to hold."""
    wanted = Stored()
    for record in map(select, records):
        if isinstance(record, StepRecord):
            for name, value in record.values.items():
                wanted.add(SeriesName(record.axis, name), record.step, value)
    return wanted


def _same(stored: float | None, wanted: float) -> bool:
    return stored is not None and (stored == wanted or (math.isnan(stored) and math.isnan(wanted)))
