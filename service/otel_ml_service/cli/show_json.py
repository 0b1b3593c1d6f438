"""What `otel-ml show --json` prints: a run as one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from otel_ml_service.cli.runs_command import described
from otel_ml_service.cli.series_json import Json, json_value, metric_json
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History, Series, SeriesName

__all__ = ["show_json"]


def show_json(
    folder: RunFolder, read: History, chosen: Iterable[tuple[SeriesName, Series]], *, with_values: bool
) -> dict[str, Json]:
    """Return how a run stands, what describes it, and its metrics, with `with_values` their values, too."""
    told = {"params": json_value(read.params), "summary": json_value(read.summary), "notes": folder.notes}
    metrics = [metric_json(key.axis, key.name, series) | _points(series, with_values) for key, series in chosen]
    return {**described(folder), **told, "metrics": metrics}


def _points(series: Mapping[int, float], with_values: bool) -> dict[str, Json]:
    points = [[step, json_value(value)] for step, value in series.items()]
    return {"points": points} if with_values else {}
