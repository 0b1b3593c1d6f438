"""What each exporter needs for a scalar, in rows of 200, its backend's own work and the closing included."""

from __future__ import annotations

import time
from pathlib import Path

from tests.benchmarks.child import answer_of
from tests.benchmarks.figures import Figure, Found
from tests.benchmarks.sizes import Size

__all__ = ["measure"]

OPTIONS: dict[str, dict[str, object]] = {"tensorboard": {}, "jsonl": {}, "wandb": {"mode": "offline"}, "mlflow": {}}
WIDTH = 200


def measure(size: Size) -> Found:
    """Measure each in a process of its own."""
    rows = {"mlflow": max(10, size.rows // 3)}
    found = {name: answer_of(scalars, name=name, rows=rows.get(name, size.rows * 3)) for name in OPTIONS}
    return Found(
        {
            f"{name}.{what}": Figure(one[what], "µs" if what != "close" else "ms", better=better, note=note)
            for name, one in found.items()
            for what, better, note in (
                ("scalar", "less", f"{one['rows']:.0f} rows of {WIDTH}"),
                ("close", "neither", "shutdown, once a run"),
            )
        }  # type: ignore[arg-type]
    )


def scalars(name: str, rows: int) -> dict[str, float]:
    """Export rows in batches of the exporter's own size; return µs a scalar, and ms of the closing."""
    from otel_ml_exporters.records import RunInfo, StepRecord
    from otel_ml_exporters.registry import exporter_class

    names = [f"train/layer_{index}/loss" for index in range(WIDTH)]
    records = [
        StepRecord(
            seq=step + 1,
            role="trainer",
            axis="step",
            step=step,
            attempt=0,
            time=1_700_000_000.0 + step,
            values={name: index + 1 / (step + 1) for index, name in enumerate(names)},
        )
        for step in range(rows + 1)
    ]
    exporter = exporter_class(name)(**OPTIONS[name])
    folder = Path.cwd() / "runs" / "bench" / "bench"  # trackers keep what all runs share two levels up
    folder.mkdir(parents=True)
    exporter.start(RunInfo("bench", "bench", "bench", folder, 1_700_000_000.0))
    assert not exporter.position(), "A run that has rows skips those it has."
    exporter.export(records[:1])  # files, tables and names are made with the first row
    batch = min(exporter.max_batch, 64)
    begin = time.perf_counter()
    for first in range(1, len(records), batch):
        exporter.export(records[first : first + batch])
    exporter.force_flush(60)
    taken = time.perf_counter() - begin
    begin = time.perf_counter()
    exporter.shutdown(60, None)
    return {"scalar": taken / rows / WIDTH * 1e6, "close": (time.perf_counter() - begin) * 1e3, "rows": rows}
