from __future__ import annotations

import math
from pathlib import Path

import pytest

from otel_ml_exporters.records import StepRecord
from otel_ml_service.aggregation.observation import Fragment, ThirdPartyPoints
from otel_ml_service.live_runs.late_file import LateFile
from otel_ml_service.live_runs.late_requests import as_request
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.stored_runs.merge_late import with_late
from tests.otlp import FakeWriter, third_party_request


def write(path: Path, *late: tuple[int, int, dict[str, float], str]) -> None:
    """Write late values: (rank, step, values, reduction)."""
    writers: dict[int, FakeWriter] = {}
    for rank, step, values, reduction in late:
        writer = writers.setdefault(rank, FakeWriter(rank=rank))
        body = writer.step(step, values, reduction=reduction).SerializeToString()
        found = Decoder().protobuf("metrics", body).observations["run-1"]
        late = [as_request(point).SerializeToString() for point in found if isinstance(point, Fragment)]
        LateFile(path, None, 2**20).append(late)


def row(seq: int, step: int, values: dict[str, float], *, attempt: int = 0, amendment: bool = False) -> StepRecord:
    return StepRecord(seq, "trainer", "step", step, attempt, 1000.0, values, amendment=amendment)


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 10.0), ("min", 1.0), ("max", 7.0), ("count", 9.0)])
def test_what_two_values_tell_is_merged_exactly(tmp_path: Path, reduction: str, expected: float) -> None:
    write(tmp_path / "late.otlp", (1, 3, {"x": 1.0}, reduction), (2, 3, {"x": 2.0}, reduction))

    merged = with_late([row(1, 2, {"x": 7.0}), row(2, 3, {"x": 7.0})], tmp_path / "late.otlp")

    assert merged.records == [row(1, 2, {"x": 7.0}), row(2, 3, {"x": expected})]
    assert (merged.values, merged.left) == (1, ())


def test_a_name_the_step_did_not_have_is_added_whatever_its_reduction(tmp_path: Path) -> None:
    write(tmp_path / "late.otlp", (1, 3, {"loss": 1.0}, "mean,max"), (2, 3, {"loss": 2.0}, "mean,max"))

    merged = with_late([row(1, 3, {"x": 7.0})], tmp_path / "late.otlp")

    assert merged.records == [row(1, 3, {"x": 7.0, "loss": 1.5, "loss/max": 2.0})]


def test_a_mean_cannot_be_merged_and_is_said(tmp_path: Path) -> None:
    write(tmp_path / "late.otlp", (1, 3, {"loss": 1.0}, "mean"), (1, 9, {"tokens": 1.0}, "sum"))

    merged = with_late([row(1, 3, {"loss": 7.0})], tmp_path / "late.otlp")

    assert merged.records == [row(1, 3, {"loss": 7.0})]
    assert merged.left == ("loss", "tokens")


def test_the_newest_value_of_the_newest_attempt_is_merged_with(tmp_path: Path) -> None:
    write(tmp_path / "late.otlp", (1, 3, {"x": 1.0}, "sum"))
    old = [row(1, 3, {"x": 100.0}), row(2, 3, {"x": 5.0}, attempt=1)]

    merged = with_late([*old, row(3, 3, {"x": 6.0}, attempt=1, amendment=True)], tmp_path / "late.otlp")

    assert merged.records == [*old, row(3, 3, {"x": 7.0}, attempt=1, amendment=True)]


def test_nan_stays_nan(tmp_path: Path) -> None:
    write(tmp_path / "late.otlp", (1, 3, {"x": 1.0}, "max"))

    (merged,) = with_late([row(1, 3, {"x": math.nan})], tmp_path / "late.otlp").records

    assert isinstance(merged, StepRecord)
    assert math.isnan(merged.values["x"])


def test_a_file_cut_off_by_a_crash_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "late.otlp"
    write(path, (1, 3, {"x": 1.0}, "sum"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-3])

    merged = with_late([row(1, 3, {"x": 7.0})], path)

    assert (merged.records, merged.torn) == ([row(1, 3, {"x": 8.0})], len(whole) - 3)
    assert with_late([row(1, 3, {"x": 7.0})], tmp_path / "none").records == [row(1, 3, {"x": 7.0})]


def test_points_of_other_sdks_are_merged_those_of_two_meters_as_two(tmp_path: Path) -> None:
    request = third_party_request(
        [{"name": "tokens", "value": 1.0, "ml.step": 3, "ml.step.axis": "step", "ml.reduction": "sum"}],
        {"ml.experiment.id": "run-1", "service.name": "trainer"},
        kind="sum",
    )
    scopes = request.resource_metrics[0].scope_metrics
    scopes.add().CopyFrom(scopes[0])
    scopes[1].scope.version = "2"
    points = Decoder().protobuf("metrics", request.SerializeToString()).observations["run-1"]
    late = [as_request(point).SerializeToString() for point in points if isinstance(point, ThirdPartyPoints)]
    LateFile(tmp_path / "late.otlp", None, 2**20).append(late)

    merged = with_late([row(1, 3, {"tokens": 7.0})], tmp_path / "late.otlp")

    assert merged.records == [row(1, 3, {"tokens": 9.0})]


def test_a_late_gauge_is_not_added_to_a_sum_that_may_have_its_process(tmp_path: Path) -> None:
    request = third_party_request(
        [{"name": "free", "value": 1.0, "ml.step": 3, "ml.step.axis": "step", "ml.reduction": "sum"}],
        {"ml.experiment.id": "run-1", "service.name": "trainer"},
    )
    (point,) = Decoder().protobuf("metrics", request.SerializeToString()).observations["run-1"]
    assert isinstance(point, ThirdPartyPoints)
    LateFile(tmp_path / "late.otlp", None, 2**20).append([as_request(point).SerializeToString()])

    merged = with_late([row(1, 3, {"free": 7.0})], tmp_path / "late.otlp")

    assert (merged.records, merged.left) == ([row(1, 3, {"free": 7.0})], ("free",))


@pytest.mark.parametrize("reduction", ["sum>max", "max@dp"])
def test_what_takes_several_writers_to_tell_is_left(tmp_path: Path, reduction: str) -> None:
    write(tmp_path / "late.otlp", (1, 3, {"x": 9.0}, reduction))
    (added,) = with_late([row(1, 3, {"y": 1.0})], tmp_path / "late.otlp").records
    (name,) = set(added.values) - {"y"}

    merged = with_late([row(1, 3, {name: 7.0})], tmp_path / "late.otlp")

    assert (merged.records, merged.left) == ([row(1, 3, {name: 7.0})], (name,))
