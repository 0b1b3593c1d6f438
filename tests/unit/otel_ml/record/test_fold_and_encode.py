"""The fast path against a slow reference: the same multiset of records, decoded by protobuf."""

from __future__ import annotations

import math
import statistics
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.series import buffer
from otel_ml._internal.steps.step import set_step
from tests.unit.otel_ml.record.decoded import every_point, manifests, points, sums

floats = st.floats(allow_nan=True, allow_infinity=True, width=64)
tame = st.floats(min_value=-1e6, max_value=1e6)
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


def same(left: float, right: float) -> bool:
    return (math.isnan(left) and math.isnan(right)) or left == right


@shared
@given(values=st.lists(floats, min_size=1, max_size=20))
def test_count_sum_minimum_and_maximum_are_those_of_the_records(recorded, values):
    for value in values:
        record("all", value, step=3, axis="a", reduce="mean")

    (point,) = points(recorded.collect(), "all")
    nan = any(math.isnan(value) for value in values)
    assert point.raw.count == len(values)
    assert same(point.raw.sum, sum(values))
    if point.raw.HasField("min"):
        assert same(point.raw.min, math.nan if nan else min(values))
        assert same(point.raw.max, math.nan if nan else max(values))
    else:
        assert len(values) == 1


@shared
@given(values=st.lists(tame, min_size=2, max_size=30), cut=st.integers(0, 30))
def test_the_parts_of_two_flushes_merge_to_the_whole(recorded, values, cut):
    parts = []
    for part in (values[:cut], values[cut:]):
        for value in part:
            record("whole", value, reduce=("mean", "std"), step=3)
        parts += points(recorded.collect(), "whole")

    count, mean, m2 = 0, 0.0, 0.0
    for part in parts:
        n, other = part.raw.count, part.raw.sum / part.raw.count
        m2 += part.attributes["ml.m2"] + (other - mean) ** 2 * count * n / (count + n)
        mean += (other - mean) * n / (count + n)
        count += n
    assert count == len(values)
    assert mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-6)
    assert m2 / count == pytest.approx(statistics.pvariance(values), rel=1e-6, abs=1e-6)


@shared
@given(pairs=st.lists(st.tuples(tame, st.floats(0, 1e6)), min_size=1, max_size=20), plain=st.lists(tame, max_size=5))
def test_weights_are_summed_and_a_record_without_one_counts_as_one(recorded, pairs, plain):
    metric = get_meter().metric("weighted")
    for value in plain:
        metric.record(value, step=3)
    for value, weight in pairs:
        metric.record(value, weight=weight, step=3)

    (point,) = points(recorded.collect(), "weighted")
    everything = [*pairs, *((value, 1.0) for value in plain)]
    assert point.attributes["ml.wsum"] == pytest.approx(math.fsum(w for _, w in everything))
    assert point.attributes["ml.wxsum"] == pytest.approx(math.fsum(w * x for x, w in everything), abs=1e-3)
    assert point.raw.count == len(everything)


@shared
@given(values=st.lists(floats, min_size=1, max_size=40))
def test_every_value_lies_in_its_exponential_bucket(recorded, values):
    for value in values:
        record("latency", value, reduce=("p50", "p99"), step=3)

    point = next(point for point in points(recorded.collect(), "latency"))
    raw = point.raw
    assert point.kind == "exponential_histogram"
    assert len(raw.positive.bucket_counts) <= 2048
    assert len(raw.negative.bucket_counts) <= 2048
    finite = [value for value in values if math.isfinite(value)]
    assert raw.count == len(values)
    assert raw.zero_count == finite.count(0.0)
    counted = sum(raw.positive.bucket_counts) + sum(raw.negative.bucket_counts) + raw.zero_count
    assert counted == len(finite)
    for side, sign in ((raw.positive, 1), (raw.negative, -1)):
        expected: dict[int, int] = {}
        for magnitude in (sign * value for value in finite if sign * value > 0):
            index = math.ceil(math.log2(magnitude) * 2**raw.scale) - 1
            expected[index] = expected.get(index, 0) + 1
        found = {side.offset + i: n for i, n in enumerate(side.bucket_counts) if n}
        assert found == expected


def test_quantiles_are_within_the_promised_accuracy(recorded):
    values = [1.0 + i * 0.37 for i in range(5000)]
    record("latency", values, reduce="p90", step=0)

    (point,) = points(recorded.collect(), "latency")
    exact = sorted(values)[math.ceil(0.9 * len(values)) - 1]
    seen = 0
    for i, n in enumerate(point.raw.positive.bucket_counts):
        seen += n
        if seen >= 0.9 * len(values):
            estimate = 2 ** ((point.raw.positive.offset + i + 0.5) / 64)
            break
    assert estimate == pytest.approx(exact, rel=0.006)


def test_data_too_wide_for_scale_6_is_counted(recorded):
    record("wide", [1e-300, 1.0, 1e300], reduce="p50", step=0)

    batch = recorded.collect()
    (point,) = points(batch, "wide")
    assert point.raw.scale < 6
    assert sums(batch)["otel_ml/quantile_coarse", 0] == 1.0
    assert batch.values == 3


def test_last_and_first_are_those_in_time(recorded):
    for value in (1.0, math.nan, 3.0):
        record("lr", value, reduce=("last", "first"), step=0)

    batch = recorded.collect(final=True)
    first, last = sorted(points(batch, "lr"), key=lambda point: point.raw.time_unix_nano)
    assert (first.value, last.value) == (1.0, 3.0)
    assert first.seq != last.seq, "one identity would swallow the other"
    assert manifests(batch) == {("step", 0): 2}


def test_a_metric_that_needs_moments_and_order_is_sent_as_both(recorded):
    record("x", 1.0, reduce=("mean", "last"), step=0)
    record("x", 5.0, reduce=("mean", "last"), step=0)

    found = {point.kind: point for point in points(recorded.collect(), "x")}
    assert found["histogram"].moments == (2, 6.0)
    assert found["gauge"].value == 5.0
    assert found["gauge"].seq == found["histogram"].seq


def test_attributes_tell_series_apart(recorded):
    for task, value in (("math", 1.0), ("code", 2.0), ("math", 3.0)):
        log({"reward": value}, attributes={"task": task, "shot": 5}, step=0, reduce="mean")

    found = {point.attributes["task"]: point for point in points(recorded.collect(), "reward")}
    assert found["math"].moments == (2, 4.0)
    assert found["code"].moments == (1, 2.0)
    assert found["code"].attributes == {"task": "code", "shot": 5}


def test_unit_and_description_travel(recorded):
    get_meter("train").metric("tokens", unit="{token}", description="Tokens seen.").record(1.0)

    body = recorded.collect().scope_metrics[0]
    (metric,) = ScopeMetrics.FromString(body).metrics
    assert (metric.name, metric.unit, metric.description) == ("tokens", "{token}", "Tokens seen.")
    assert metric.histogram.aggregation_temporality == 1


def test_bytes_are_those_protobuf_itself_would_write(recorded):
    """A receiver compares shapes byte by byte, so field order must be the canonical one."""
    meter = get_meter()
    for reduce in ("mean", ("p50", "std"), ("last", "mean"), "sum"):
        metric = meter.metric(f"m{reduce[0]}", reduce=reduce, unit="s")
        for value in (1.0, 2.5):
            metric.record(value, step=12345, attributes={"k": "v"})
        meter.metric(f"plain{reduce[0]}", reduce=reduce).record(1.0, step=12345)
    set_step(12345)

    bodies = recorded.collect(final=True).scope_metrics
    names = {metric.name for body in bodies for metric in ScopeMetrics.FromString(body).metrics}
    assert {"mm", "mp50", "mlast", "ms", "plainm"} <= names
    for body in bodies:
        assert ScopeMetrics.FromString(body).SerializeToString() == body


def test_the_order_of_metrics_is_stable_and_the_manifest_comes_last(recorded):
    for i, names in enumerate(("abc", "cab", "bca")):
        set_step(i)
        log(dict.fromkeys(names, 1.0))
    batch = recorded.collect(final=True)

    assert ["".join(p.name for p in points(batch) if p.step == i) for i in range(3)] == ["abc"] * 3
    kinds = [point.name for point in every_point(batch)]
    assert kinds.index("otel_ml.step.points") > max(i for i, name in enumerate(kinds) if name in "abc")


def test_minimum_and_maximum_are_sent_from_the_first_point_that_needs_them(recorded):
    shapes = []
    for i, values in enumerate(([1.0], [1.0, 2.0], [3.0])):
        record("x", values, step=i, reduce="mean")
        (point,) = points(recorded.collect(), "x")
        shapes.append(point.raw.HasField("min"))

    assert shapes == [False, True, True]


def test_the_running_number_has_no_gaps(recorded):
    for i in range(5):
        set_step(i)
        log({"x": 1.0})
        log({"y": 1.0}, reduce="sum")
    first = recorded.collect()
    second = recorded.collect(final=True)

    numbers = [point.seq for batch in (first, second) for point in every_point(batch)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


def test_threads_that_hammer_lose_nothing_while_others_fold(recorded):
    each, threads = 30_000, 6
    metric = get_meter().metric("n", reduce="sum")
    done = threading.Event()
    totals: dict[tuple[str, int | None], float] = {}
    said: dict[object, int] = {}
    sent: dict[object, int] = {}

    def hammer() -> None:
        for i in range(each):
            if i % 997 == 0:
                set_step(i // 997)
            metric.record(1.0)

    def collect() -> None:
        last = done.is_set()
        batch = recorded.collect(final=last)
        for key, value in sums(batch).items():
            totals[key] = totals.get(key, 0.0) + value
        for point in points(batch):
            sent[point.axis, point.step] = sent.get((point.axis, point.step), 0) + 1
        for key, count in manifests(batch).items():
            said[key] = max(count, said.get(key, 0))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=hammer) for _ in range(threads)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            collect()
    finally:
        sys.setswitchinterval(interval)
    done.set()
    collect()

    assert sum(totals.values()) == each * threads
    assert said == sent
    assert recorder.recorded == each * threads


def test_callers_bound_the_buffer_themselves(recorded):
    metric = get_meter().metric("n", reduce="sum")
    for _ in range(buffer.LIMIT // buffer.STRIDE + 10):
        metric.record(1.0)

    assert len(buffer.RECORDS) < buffer.LIMIT
    assert sums(recorded.collect()) == {("n", None): buffer.LIMIT // buffer.STRIDE + 10}


def test_a_caller_does_not_wait_for_a_fold_in_progress(recorded):
    metric = get_meter().metric("n", reduce="sum")
    with FOLDER.lock:
        begin = time.monotonic()
        for _ in range(buffer.LIMIT // buffer.STRIDE + 10):
            metric.record(1.0)
        assert time.monotonic() - begin < 30

    assert sums(recorded.collect()) == {("n", None): buffer.LIMIT // buffer.STRIDE + 10}


def test_totals_add_up(recorded):
    log({"x": [1.0, 2.0], "y": 1, "bad": None}, reduce="mean")
    batch = recorded.collect()

    assert batch.values == recorder.recorded == 3
    assert batch.points == 2
    assert sum(recorder.dropped.values()) == 1
    assert recorder.overhead_s > 0
