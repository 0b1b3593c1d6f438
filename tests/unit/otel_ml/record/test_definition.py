from __future__ import annotations

import pytest

from otel_ml._internal.error_reporting import RecordingError, reporter
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.series.definition import DEFINITIONS, QUANTILE_COARSE, Definition, Series, define_metric
from otel_ml.wire.reduction import Reduction
from tests.unit.otel_ml.record.decoded import points, sums


def reduction(batch, name):
    return next(point.reduction for point in points(batch, name))


@pytest.fixture
def said(recorded):
    sentences: list[str] = []
    reporter.connect(sentences.append)
    return sentences


def test_the_mean_is_the_default(recorded):
    log({"x": 1.0})
    assert reduction(recorded.collect(), "x") == "mean"


def test_a_tuple_within_and_over_travel_as_one_string(recorded):
    record("x", 1.0, reduce=("max", "mean"), within="sum", over="dp")
    assert reduction(recorded.collect(), "x") == "sum>max,mean@dp"


def test_what_is_forgotten_leaves_our_own_series_a_place_of_their_own():
    DEFINITIONS.forget()
    series = Series(Definition("x", Reduction(("max",)), "", ""))
    series.settle()

    assert series.order >> 32 != QUANTILE_COARSE.order >> 32  # another reduction: another group


def test_a_glob_defines_all_names_that_match(recorded):
    define_metric("tokens*", reduce="sum")
    log({"tokens/seen": 1.0, "loss": 1.0})

    batch = recorded.collect()
    assert reduction(batch, "tokens/seen") == "sum"
    assert reduction(batch, "loss") == "mean"


def test_a_name_with_brackets_is_no_glob(recorded):
    define_metric("acc[top-1]", reduce="max")
    define_metric("p[*]", reduce="sum")
    log({"acc[top-1]": 1.0, "acct": 1.0, "p[0]": 1.0, "p*": 1.0})

    batch = recorded.collect()
    found = [reduction(batch, name) for name in ("acc[top-1]", "acct", "p[0]", "p*")]
    assert found == ["max", "mean", "sum", "mean"]


def test_an_exact_name_beats_a_glob(recorded):
    define_metric("*", reduce="sum")
    define_metric("loss", reduce="max")
    log({"loss": 1.0})
    assert reduction(recorded.collect(), "loss") == "max"


def test_a_metric_made_at_import_is_defined_by_the_program_later(recorded, said):
    metric = get_meter("library").metric("library/tokens")
    define_metric("library/*", reduce="sum", unit="{token}")
    metric.record(1.0)

    assert reduction(recorded.collect(), "library/tokens") == "sum"
    assert said == []


def test_the_first_definition_of_a_name_stays_and_the_conflict_is_said_once(recorded, said):
    record("x", 1.0, reduce="sum")
    for _ in range(3):
        record("x", 2.0, reduce="max")
    define_metric("x", reduce="min")

    assert sums(recorded.collect()) == {("x", None): 7.0}
    assert len(said) == 2
    assert "'sum'" in said[0]
    assert "'max'" in said[0]


def test_log_without_a_reduction_uses_the_one_defined(recorded, said):
    record("x", 1.0, reduce="sum")
    record("x", 1.0)

    assert reduction(recorded.collect(), "x") == "sum"
    assert said == []


def test_a_reduction_without_name_within_a_rank_is_a_mean_across(recorded):
    record("x", 1.0, within="sum")
    assert reduction(recorded.collect(), "x") == "sum>mean"


def test_an_unknown_reduction_is_said_with_the_nearest_and_loses_nothing(recorded, said):
    log({"x": 1.0}, reduce="maen")

    assert reduction(recorded.collect(), "x") == "mean"
    assert len(said) == 1
    assert "Did you mean 'mean'?" in said[0]


@pytest.mark.parametrize("bad", [3, ("mean", "mean"), (), [["mean"]]])
def test_a_reduction_of_the_wrong_kind_is_said(recorded, said, bad):
    log({"x": 1.0}, reduce=bad)
    define_metric("y", reduce=bad)

    assert reduction(recorded.collect(), "x") == "mean"
    assert recorder.dropped == {}
    assert len(said) == 2


def test_attributes_of_any_kind_are_recorded_as_text(recorded):
    log({"x": 1.0}, attributes={"layers": [1, 2]}, reduce="mean")
    get_meter().metric("x").record(2.0, attributes={"layers": [1, 2]})

    (point,) = points(recorded.collect())
    assert point.attributes == {"layers": "[1, 2]"}
    assert point.moments == (2, 3.0)


def test_an_unknown_reduction_raises_in_strict_mode(recorded):
    recorded.configure(strict=True)
    with pytest.raises(RecordingError, match="Did you mean"):
        define_metric("x", reduce="summ")


@pytest.mark.feature("N3", "yes", "`prefix=`; role and axis come before it by themselves")
def test_a_prefix_is_part_of_the_name(recorded):
    log({"loss": 1.0}, prefix="val")
    assert sums(recorded.collect()) == {("val/loss", None): 1.0}


@pytest.mark.parametrize(("prefix", "name"), [("val/", "val/loss"), ("val//", "val/loss"), ("/", "loss")])
def test_a_slash_at_the_end_of_a_prefix_is_the_one_before_the_name(recorded, prefix, name):
    log({"loss": 1.0}, prefix=prefix)
    assert sums(recorded.collect()) == {(name, None): 1.0}


def test_of_attributes_whose_keys_are_one_text_the_last_counts(recorded):
    log({"x": 1.0}, attributes={1: "a", "1": 2}, reduce="mean")

    (point,) = points(recorded.collect(), "x")
    assert point.attributes == {"1": 2}
    assert not recorder.dropped


def test_attributes_in_any_order_are_one_series(recorded):
    log({"x": 1.0}, attributes={"a": "1", "b": "2"}, reduce="mean")
    log({"x": 2.0}, attributes={"b": "2", "a": "1"}, reduce="mean")

    (point,) = points(recorded.collect())
    assert point.moments == (2, 3.0)


def test_a_name_that_never_repeats_is_bounded_and_said(recorded, said, monkeypatch):
    monkeypatch.setattr(DEFINITIONS, "MAX_SERIES", 10)
    for i in range(15):
        record(f"loss_{i}", 1.0)

    assert recorded.collect().points == 10
    assert recorder.dropped == {"too_many_series": 5}
    assert "too_many" not in said[0]
    assert "names and attributes" in said[0]


def test_instruments_of_opentelemetry_work_as_they_are(recorded):
    meter = get_meter("train")
    counter = meter.create_counter("samples", unit="{sample}")
    level = meter.create_up_down_counter("queue")
    histogram = meter.create_histogram("latency", unit="s")
    gauge = meter.create_gauge("lr")
    counter.add(3)
    counter.add(4, {"split": "train"})
    level.add(5)
    level.add(-2)
    histogram.record(0.5)
    gauge.set(0.1)
    gauge.set(0.2)

    found = {(p.name, p.reduction): p for p in points(recorded.collect()) if not p.attributes}
    assert found["samples", "sum"].raw.sum == 3.0
    assert found["queue", "last>sum"].value == 3.0
    assert found["latency", "mean,p50,p90,p99"].raw.count == 1
    assert found["lr", "last"].value == 0.2
