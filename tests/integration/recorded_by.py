"""What a receiver, or a run's folder, has of each run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.otlp_server import OtlpServer


def values_of(server: OtlpServer, name: str) -> dict[str, list[float]]:
    """Return the values of a metric by run name, in the order of their steps."""
    found: dict[str, list[tuple[int, float]]] = {}
    for point in server.points(name):
        found.setdefault(point.resource["ml.run.name"], []).append((point.step or 0, point.value))
    return {run_name: [value for _, value in sorted(values)] for run_name, values in found.items()}


def ids_of(server: OtlpServer, name: str) -> set[str]:
    return {str(point.resource["ml.experiment.id"]) for point in server.points(name)}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
