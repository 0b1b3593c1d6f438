"""The geometric mean of a job of two processes, as its JSONL file has it."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

from tests.e2e.jobs import the_run_in
from tests.integration.worker_process import environment, run, start

VALUES = [[0.5, 2.0, 8.0], [3.0, 1e-200]]

RANK = """
    import json, sys
    import otel_ml
    values, rank = {values}, {rank}
    with otel_ml.init("geometric", id="one", rank=rank, world_size=2, exporters="jsonl"):
        for step in otel_ml.steps(range(3)):
            for value in values[rank]:
                otel_ml.log({{"speedup": value * (step + 1)}}, reduce=("geomean", "max"))
            otel_ml.log({{"weighed": 4.0 if rank else 9.0}}, weight=3.0 if rank else 1.0, reduce="geomean")
            otel_ml.log({{"signed": rank - 1.0, "zero": float(rank)}}, reduce="geomean")
"""


def test_the_file_has_the_geometric_mean_of_both_ranks(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    other = start(RANK.format(values=VALUES, rank=1), environ, tmp_path)
    run(RANK.format(values=VALUES, rank=0), environ, tmp_path)
    _, errors = other.communicate(timeout=60)
    assert other.returncode == 0, errors

    folder = the_run_in(tmp_path / "runs")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = {line["step"]: line["values"] for line in lines if "speedup" in line.get("values", {})}

    assert sorted(rows) == [0, 1, 2]
    for step, row in rows.items():
        values = [value * (step + 1) for part in VALUES for value in part]
        assert row["speedup"] == pytest.approx(statistics.geometric_mean(values), rel=1e-12)
        assert row["speedup/max"] == max(values)
        assert row["weighed"] == pytest.approx(statistics.geometric_mean([9.0, 4.0, 4.0, 4.0]), rel=1e-12)
        assert row["zero"] == 0.0
        assert math.isnan(row["signed"])
