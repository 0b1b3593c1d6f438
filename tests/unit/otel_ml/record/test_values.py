from __future__ import annotations

import array
import collections
import decimal
import fractions
import math

import numpy as np
import pytest
import torch

from otel_ml._internal.error_reporting import RecordingError, reporter
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.series.definition import define_metric
from otel_ml.testing import capture
from tests.unit.otel_ml.record.decoded import points


@pytest.mark.parametrize(
    "value",
    [
        2.0, 2, np.float32(2), np.float64(2), np.int8(2), np.float16(2), np.array(2.0), np.array(2), torch.tensor(2.0),
        torch.tensor(2), torch.tensor(2.0, dtype=torch.bfloat16), torch.tensor(2.0, requires_grad=True),
        decimal.Decimal(2), fractions.Fraction(2),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.feature("N9", "better", "tensors on a device too, without waiting for them")
def test_a_number_of_any_library_is_one_record(recorded, value):
    record("x", value)

    (point,) = points(recorded.collect())
    assert point.moments == (1, 2.0)


@pytest.mark.parametrize("value", [True, np.True_, torch.tensor(True)], ids=repr)
def test_a_truth_value_counts_as_one(recorded, value):
    record("hit", value)

    (point,) = points(recorded.collect())
    assert point.moments == (1, 1.0)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.0, np.float32(3)], (1.0, 2.0, 3.0), np.array([1, 2, 3]), torch.tensor([1.0, 2.0, 3.0]), range(1, 4),
        array.array("f", [1, 2, 3]), collections.deque([1, 2, 3]), [torch.tensor(1.0), torch.tensor(5.0), 0],
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.feature("N10", "better", "any reductions, over the elements of all ranks")
@pytest.mark.feature("R4", "yes", "each element is one record")
def test_each_element_of_a_sequence_is_one_record(recorded, value):
    record("x", value, reduce="mean")

    (point,) = points(recorded.collect())
    assert point.moments == (3, 6.0)


def test_an_empty_sequence_is_no_record(recorded):
    record("x", [])
    record("y", np.array([]))

    assert points(recorded.collect()) == []
    assert recorder.dropped == {}


@pytest.mark.parametrize("value", [np.zeros(1), torch.zeros(())], ids=["numpy", "torch"])
def test_cpu_values_are_copied_at_the_call(recorded, value):
    record("x", value)
    value += 100

    (point,) = points(recorded.collect())
    assert point.raw.sum == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_data(recorded, value):
    record("x", value)

    (point,) = points(recorded.collect())
    assert point.raw.sum == value or math.isnan(value)
    assert recorder.dropped == {}


class Explodes:
    def __float__(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "value",
    [
        None, {"a": 1}, "1.0", b"1", object(), 1j, np.zeros((2, 2, 2)), torch.zeros(2, 2), [[1.0]], np.array(["a"]),
        np.complex64(1), torch.tensor(1j), 10**400, Explodes(), torch.zeros((), device="meta"),
        collections.Counter([7]), collections.defaultdict(float, {0: 0.5}), collections.OrderedDict({1: 2}),
        collections.UserDict({1: 2}),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_number_is_counted_and_said_and_the_rest_recorded(recorded, value):
    said: list[str] = []
    reporter.connect(said.append)
    for _ in range(3):
        log({"bad": value, "good": 1.0}, reduce="mean")

    assert [point.name for point in points(recorded.collect())] == ["good"]
    assert recorder.dropped == {"bad_value": 3}
    assert len(said) == 1
    assert "'bad'" in said[0]


@pytest.mark.parametrize("name", ["", None, 3, "otel_ml/mine", "x/otel_ml/mine", "otel_ml.position", ("a",), ["a"]])
def test_a_bad_name_is_counted_and_said(recorded, name):
    record(name, 1.0)
    get_meter().metric(name).record(1.0)

    assert points(recorded.collect()) == []
    assert sum(recorder.dropped.values()) >= 1


@pytest.mark.parametrize("name", ["a" * 300, "größe", "loss@5", "a//b", "with space", "\ud800"])
def test_an_unusual_name_travels_as_it_is(recorded, name):
    record(name, 1.0)

    (point,) = points(recorded.collect())
    assert point.name == name.encode("utf-8", "backslashreplace").decode()


def test_ten_thousand_names_are_recorded(recorded):
    log({f"n{i}": float(i) for i in range(10_000)})

    assert recorded.collect().points == 10_000


@pytest.mark.parametrize("values", [None, 3, ["a", 1]])
def test_log_of_something_else_than_a_mapping_does_not_raise(recorded, values):
    log(values)

    assert sum(recorder.dropped.values()) == 1


def test_strict_mode_raises(recorded):
    recorded.configure(strict=True)
    with pytest.raises(RecordingError, match=r"'loss'.*got None"):
        log({"loss": None})


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, None.__class__, "1", [1.0, 2.0]])
def test_a_bad_weight_is_counted(recorded, weight):
    record("x", 1.0, weight=weight)

    assert points(recorded.collect()) == []
    assert recorder.dropped == {"bad_weight": 1}


def test_weights_go_with_the_elements_of_a_sequence(recorded):
    record("x", [1.0, 2.0], weight=[3, 4])
    record("x", [10.0, 10.0], weight=np.float32(0.5))

    (point,) = points(recorded.collect())
    assert (point.attributes["ml.wsum"], point.attributes["ml.wxsum"]) == (8.0, 21.0)
    assert point.raw.count == 4


NO_PART = ["sum", "last", "first", "min", "max", "count", "p50", "histogram", "argmax", ("sum", "std")]
PART = ["mean", "geomean", "rank", "std", ("sum", "mean")]


@pytest.mark.parametrize(("reduce", "has_part"), [*((one, False) for one in NO_PART), *((one, True) for one in PART)])
def test_a_weight_that_has_no_part_in_the_reduction_is_said_once(reduce, has_part):
    with capture() as run:
        for step in range(2):
            record("x", 2.0, step=step, reduce=reduce, weight=3.0)

        assert {point.step for point in run.points if point.name == "x"} == {0, 1}
        said = [notice for notice in run.notices if notice.startswith("Metric 'x': a weight has no part in reduce=")]
    assert len(said) == (not has_part)


def test_a_weight_of_a_metric_that_is_defined_without_one_is_said():
    with capture() as run:
        define_metric("tokens", reduce="sum")
        log({"tokens": 2.0}, step=0, weight=3.0)
        log({"loss": 2.0}, step=0, weight=3.0)

        assert run.values("tokens") == [2.0]
        assert [notice[:15] for notice in run.notices] == ["Metric 'tokens'"]


def test_a_weight_together_with_within_is_an_error(recorded):
    record("x", 1.0, weight=2.0, within="sum")

    assert points(recorded.collect()) == []
    assert recorder.dropped == {"bad_weight": 1}


def test_nothing_is_recorded_while_recording_is_off(recorded):
    recorder.enabled = False
    log({"x": 1.0})
    record("x", 1.0)
    get_meter().metric("x").record(1.0)
    recorder.enabled = True

    assert recorded.collect().values == 0
    assert recorder.dropped == {}
