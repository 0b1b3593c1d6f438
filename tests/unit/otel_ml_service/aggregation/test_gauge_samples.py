"""Which samples of a gauge were sent before: remembered of the newest steps, and looked for in the step of others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otel_ml_service.aggregation.gauge_samples import GaugeSamples
from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.point_identities import SeriesOrigin
from otel_ml_service.aggregation.points import Partials, single

PLACE = SeriesOrigin(0, "a", "step")
REMEMBERED = 200_000


def shape_of(size: int) -> Shape:
    return Shape(0, tuple(SeriesKey(f"rate/{number}", (), "order") for number in range(size)))


def repeated(samples: GaugeSamples, shape: Shape, step: int, time_ns: int, values: Sequence[float]) -> list[bool]:
    stats = np.concatenate([single(value) for value in values])
    points = Partials(shape.series, stats, np.full((len(values), 2), time_ns))
    found = samples.repeated(PLACE, shape, step, time_ns, points, ())
    return [False] * len(values) if found is None else found.tolist()


def test_a_value_was_sent_before_where_the_newest_sample_of_its_series_is_the_same() -> None:
    samples, shape = GaugeSamples(), shape_of(3)

    assert repeated(samples, shape, 0, 2, [1.0, 2.0, math.nan]) == [False, False, False]
    assert repeated(samples, shape, 0, 3, [1.0, 5.0, math.nan]) == [True, False, True]
    assert repeated(samples, shape, 0, 4, [1.0, 5.0, 0.0]) == [True, True, False]
    assert repeated(samples, shape, 1, 5, [1.0, 5.0, 0.0]) == [False, False, False]


def test_a_sample_that_comes_late_is_not_what_was_sent_last() -> None:
    samples, shape = GaugeSamples(), shape_of(1)
    repeated(samples, shape, 0, 2, [5.0])

    assert repeated(samples, shape, 0, 1, [3.0]) == [False]
    assert repeated(samples, shape, 0, 2, [5.0]) == [True]


def test_of_two_samples_of_one_time_the_one_that_came_last_counts() -> None:
    samples, shape = GaugeSamples(), shape_of(1)
    repeated(samples, shape, 0, 2, [5.0])
    repeated(samples, shape, 0, 2, [3.0])

    assert repeated(samples, shape, 0, 2, [3.0]) == [True]


def test_the_newest_two_hundred_thousand_values_are_remembered_and_those_before_them_forgotten() -> None:
    steps, size = 100, REMEMBERED // 100
    samples, shape, values = GaugeSamples(), shape_of(size), np.arange(size).tolist()
    for step in range(steps):
        repeated(samples, shape, step, step, values)
    assert all(repeated(samples, shape, 0, steps, values))  # there is room for all, and it is the newest now

    repeated(samples, shape, steps, steps, values)

    assert all(repeated(samples, shape, 0, steps, values))
    assert all(all(repeated(samples, shape, step, steps, values)) for step in range(2, steps + 1))
    assert not any(repeated(samples, shape, 1, steps, values))
