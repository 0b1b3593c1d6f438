from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, RunInfo, StepRecord
from otel_ml_exporters.registry import exporter_class
from otel_ml_service.demo.verify import _mlflow, _same, compare, float32
from tests.recorded_run import digits_records, write_run

BACKENDS = ["jsonl", "tensorboard"]


def awkward_records() -> list[Record]:
    records = digits_records(steps=12)
    seq = records[-1].seq
    return [
        *records,
        StepRecord(seq + 1, "trainer", "step", 12, 0, 3000.0, {"loss": math.nan, "huge": 1e300, "minus": -math.inf}),
        StepRecord(seq + 2, "trainer", "step", 5, 0, 3000.0, {"loss": 0.125}, amendment=True),
        StepRecord(seq + 3, "trainer", "time", 7, 0, 3000.0, {"otel_ml/received": 5.0}),
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_that_was_given_everything_is_identical(tmp_path: Path, backend: str) -> None:
    records = awkward_records()
    run = write_run(tmp_path, "r1", records, exporters=[backend])

    result = compare(backend, run, records)

    assert result.different == []
    assert (result.extra, result.expected_extra) == (1, 1)
    every = {(record.axis, name, record.step)
             for record in records if isinstance(record, StepRecord) for name in record.values}  # fmt: skip
    assert result.points == len(every)
    assert result.is_identical


def test_a_changed_value_a_lost_step_and_a_duplicate_are_found(tmp_path: Path) -> None:
    records = digits_records(steps=12)
    run = write_run(tmp_path, "r1", records)
    lines = run.jsonl.read_text().splitlines()
    changed = json.loads(lines[3])
    changed["values"]["loss"] += 1e-12
    run.jsonl.write_text("\n".join([*lines[:3], json.dumps(changed), *lines[5:], lines[5]]) + "\n")

    result = compare("jsonl", run, records)

    assert not result.is_identical
    assert ("step", "loss") in {key for key, _ in result.different}
    assert result.extra == len(json.loads(lines[5])["values"])
    assert result.points == compare("jsonl", write_run(tmp_path, "r2", records), records).points - len(result.different)
    assert len(result.different) == 1 + len(json.loads(lines[4])["values"])


def test_a_backend_without_otel_mls_bookkeeping_holds_all_that_it_should(tmp_path: Path) -> None:
    records = [
        StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0}),
        StepRecord(2, "", "time", 10, 0, 2.0, {"otel_ml/lag/exporter/jsonl": 0.0, "otel_ml/lost/exporter/jsonl": 0.0}),
    ]
    run = write_run(tmp_path, "one", records)
    exporter = exporter_class("tensorboard")()
    exporter.start(RunInfo(id="one", experiment="digits", name="one", dir=run.path, started_at=1.0))
    exporter.export(records[:1])
    exporter.shutdown(5.0, None)

    assert compare("tensorboard", run, records).is_identical
    assert compare("jsonl", run, records).is_identical
    assert not compare("tensorboard", run, [*records, replace(records[0], seq=3, step=1)]).is_identical


@pytest.mark.parametrize(
    ("value", "stored"),
    [(math.inf, 1.7976931348623157e308), (-math.inf, -1.7976931348623157e308), (0.5, 0.5), (-3.0, -3.0)],
)
def test_mlflow_stores_the_largest_double_for_infinity(value: float, stored: float) -> None:
    assert _mlflow(value) == stored


@pytest.mark.parametrize(
    ("stored", "wanted", "is_same"),
    [(1.0, 1.0, True), (1.0, 2.0, False), (None, 1.0, False), (math.nan, math.nan, True), (math.nan, 1.0, False),
     (1.0, math.nan, False)],
)  # fmt: skip
def test_a_value_is_the_same_where_nan_is_nan(stored: float | None, wanted: float, is_same: bool) -> None:
    assert _same(stored, wanted) is is_same


def test_a_float32_is_the_nearest_one() -> None:
    assert [float32(value) for value in (0.1, 1e300, -1e300, 2.0)] == [0.10000000149011612, math.inf, -math.inf, 2.0]
