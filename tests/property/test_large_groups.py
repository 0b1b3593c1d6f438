"""Buckets of many values at once are those of Python, in the same order."""

from __future__ import annotations

import math
import random

import pytest

from otel_ml._internal.native import native
from otel_ml._internal.record import fold
from otel_ml._internal.series.definition import Definition, Series
from otel_ml._internal.series.pending import StepPartials
from otel_ml.wire.reduction import Reduction


@pytest.mark.parametrize("decades", [1, 5, 200])
def test_many_values_are_counted_as_python_counts_them(decades: int) -> None:
    assert native is not None
    assert fold.native is native
    draw = random.Random(decades)
    values = [
        draw.choice([0.0, math.nan, draw.gauss(0, 1) * 10 ** draw.uniform(-decades, decades)]) for _ in range(5000)
    ]
    found = []
    for add in (native.merge_group, StepPartials.add_values):
        series, pending = Series(Definition("a", Reduction(("p50",)), "", "")), StepPartials(1)
        series.settle()
        for part in (values, values[:70]):
            add(pending, series, list(part))
        buckets = pending.buckets[series]
        found.append((buckets.scale, buckets.zeros, list(buckets.positive.items()), list(buckets.negative.items())))

    assert found[0] == found[1]
