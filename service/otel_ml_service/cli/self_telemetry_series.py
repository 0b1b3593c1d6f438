"""Which series of otel_ml's own account a list of a run's metrics has: those that a backend has, too."""

from __future__ import annotations

from collections import defaultdict

from otel_ml.wire.published_name import is_own
from otel_ml_exporters.records import StepRecord
from otel_ml_service.delivery.self_telemetry_filter import SelfTelemetryFilter, is_position
from otel_ml_service.stored_runs.run_history import History

__all__ = ["not_as_it_should_be"]


def not_as_it_should_be(read: History) -> set[str]:
    """Return the names of otel_ml's own series that tell of a loss, a lag, a slow rank, ….

    Examples:
        >>> row = {"loss": 1.0, "otel_ml/lost/exporter/wandb": 3.0, "otel_ml/lost/exporter/jsonl": 0.0}
        >>> read = History()
        >>> read.add(StepRecord(1, "", "time", 10, 0, 1.0, row))
        >>> not_as_it_should_be(read)
        {'otel_ml/lost/exporter/wandb'}
    """
    rows: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for key, series in read.series.items():
        if is_own(key.name):
            for step, value in series.items():
                rows[key.axis, step][key.name] = value
    records = [StepRecord(0, "", axis, step, 0, 0.0, values) for (axis, step), values in sorted(rows.items())]
    found = SelfTelemetryFilter()
    found.note(records)
    selected = (found.select(record) for record in records)
    names = {name for record in selected if isinstance(record, StepRecord) for name in record.values}
    return {name for name in names if not is_position(name)}
