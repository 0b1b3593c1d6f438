"""What `define_metric()` says of many names at once gives way to what is said of one, whoever was first."""

from __future__ import annotations

import itertools

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.log import log
from otel_ml._internal.series.definition import DEFINITIONS, define_metric
from tests.unit.otel_ml.record.decoded import points

GLOBS = (("*", "mean"), ("train/*", "min"), ("train/tok*", "sum"))


def reduction(batch, name):
    return next(point.reduction for point in points(batch, name))


@pytest.fixture
def said(recorded):
    sentences: list[str] = []
    reporter.connect(sentences.append)
    return sentences


def test_a_call_counts_and_not_a_glob(recorded, said):
    define_metric("*", reduce="mean")
    log({"tokens": 1.0}, reduce="sum")

    assert reduction(recorded.collect(), "tokens") == "sum"
    assert said == []


def test_a_definition_of_the_name_counts_and_not_a_glob_that_was_used_before(recorded, said):
    define_metric("tok*", reduce="sum")
    log({"tokens": 1.0})
    define_metric("tokens", reduce="max")
    log({"tokens": 1.0})

    found = [point.reduction for point in points(recorded.collect(), "tokens")]
    assert found == ["sum", "max"]  # the service reduces both as is said of the name
    assert said == []


@pytest.mark.parametrize("order", list(itertools.permutations(GLOBS)))
def test_of_several_globs_the_one_with_more_characters_of_its_own_counts_in_any_order(recorded, said, order):
    for glob, how in order:
        define_metric(glob, reduce=how)
    log({"train/tokens": 1.0, "train/loss": 1.0, "lr": 1.0})

    batch = recorded.collect()
    assert [reduction(batch, name) for name in ("train/tokens", "train/loss", "lr")] == ["sum", "min", "mean"]
    assert said == []


def test_a_glob_that_says_another_part_adds_it(recorded, said):
    define_metric("*", within="sum")
    define_metric("tok*", reduce="max")
    log({"tokens": 1.0})

    assert reduction(recorded.collect(), "tokens") == "sum>max"
    assert said == []


def test_a_glob_that_is_said_twice_in_two_ways_keeps_the_first_and_that_is_said(recorded, said):
    define_metric("tok*", reduce="sum")
    define_metric("tok*", reduce="max")
    log({"tokens": 1.0})

    assert reduction(recorded.collect(), "tokens") == "sum"
    assert len(said) == 1
    assert "'tok*' is reduced by 'sum' in this process, so 'max' is not used" in said[0]


def test_what_is_not_used_in_a_process_is_not_told_to_the_service(recorded, said):
    log({"a": 1.0}, reduce="sum")
    define_metric("a", reduce="max")
    define_metric("b", reduce="min")
    define_metric("b", reduce="max")

    told = {(pattern, str(how)) for pattern, how, _, _ in DEFINITIONS.declared}
    assert told == {("a", "sum"), ("b", "min")}
    assert len(said) == 2


def test_a_loop_that_says_at_each_step_how_a_metric_is_reduced_tells_it_once(recorded, said):
    for step in range(100):
        define_metric("loss", reduce="max", unit="1")
        define_metric("val/*", reduce="min")
        log({"loss": float(step)})

    assert [pattern for pattern, *_ in DEFINITIONS.declared] == ["loss", "val/*"]
    assert said == []
