"""verl's `reduce_metrics()`, without the defects that were reported there."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat.verl import (
    Tracking,
    reduce_metrics,
)
from otel_ml.testing import Capture, capture


class Smallest:
    """As verl's `Metric`: values that know how they become one."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)

    def aggregate(self) -> float:
        return min(self.values)


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def test_a_name_that_only_contains_max_or_min_is_averaged() -> None:
    reduced = reduce_metrics({"minmax_diff": [1.0, 3.0], "reward/max": [1.0, 3.0], "len_min": [1, 3], "loss": [1, 3]})

    assert reduced == {"minmax_diff": 2.0, "reward/max": 3.0, "len_min": 1, "loss": 2.0}


def test_all_elements_of_all_workers_lists_count() -> None:
    lists = [[1.0, 5.0], [3.0]]

    assert reduce_metrics({"a_max": lists, "a_min": lists, "a": lists}) == {"a_max": 5.0, "a_min": 1.0, "a": 3.0}
    assert reduce_metrics({"a_max": [np.array([1.0, 2.0]), np.array([3.0, 0.0])], "b": [[], [2.0]], "c": [[]]}) == {
        "a_max": 3.0,
        "b": 2.0,
    }


def test_the_dictionary_that_is_given_is_the_one_that_is_reduced() -> None:
    metrics = {"loss": [1.0, 3.0], "none": [], "lr": 0.5}

    assert reduce_metrics(metrics) is metrics
    assert metrics == {"loss": 2.0, "lr": 0.5}


@pytest.mark.parametrize("name", ["x.max", "x-max", "x max", "x/max@8", "max:x"])
def test_a_word_ends_at_whatever_is_no_letter_and_no_digit(name: str) -> None:
    assert reduce_metrics({name: [1.0, 3.0]}) == {name: 3.0}


@pytest.mark.parametrize(
    "values",
    [
        range(1, 4),
        deque([1, 3]),
        [Fraction(1), Fraction(3)],
        torch.tensor([1.0, 3.0], dtype=torch.bfloat16),
        [torch.tensor(1.0, dtype=torch.float16, requires_grad=True), np.float32(3)],
    ],
    ids=["range", "deque", "fractions", "bfloat16", "float16"],
)
def test_numbers_in_any_sequence_are_reduced(values: Any) -> None:
    assert reduce_metrics({"loss": values}) == {"loss": 2.0}


@pytest.mark.parametrize("name", ["loss", "loss/max"])
def test_what_cannot_be_reduced_stays_and_the_others_are_reduced(name: str) -> None:
    odd = [None, "x"]

    assert reduce_metrics({name: odd, "other": [1.0, 3.0]}) == {name: odd, "other": 2.0}


@pytest.mark.parametrize("name", ["x/max", "x/min", "x"])
def test_one_nan_makes_the_value_nan_wherever_it_stands(name: str) -> None:
    for values in ([1.0, math.nan], [math.nan, 1.0]):
        assert math.isnan(reduce_metrics({name: values})[name]), values


def test_a_metric_of_verl_is_what_it_says_it_is() -> None:
    reduced = reduce_metrics({"actor/max": Smallest(1.0, 2.0), "none": Smallest(), "loss": [1.0, 3.0]})

    assert reduced == {"actor/max": 1.0, "loss": 2.0}


def test_empty_lists_are_left_out_and_do_not_crash(captured: Capture) -> None:
    assert reduce_metrics({"a": [], "b": np.array([]), "c": 1.0}) == {"c": 1.0}
    Tracking("grpo", "dev").log({"a": [], "loss": 1.0}, step=0)

    assert captured.values("loss") == [1.0]
    assert captured.values("a") == []
