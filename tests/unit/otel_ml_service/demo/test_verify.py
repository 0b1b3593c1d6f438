from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters.records import Record, RunInfo, StepRecord
from otel_ml_exporters.registry import exporter_class
from otel_ml_service.demo.verify import compare
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
