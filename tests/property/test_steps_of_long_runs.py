"""What is found out quickly of a long run is what looking at each step says."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.report.curves import Curve, chart, thinned
from otel_ml_service.stored_runs.missing_ranks import Silence, steps_without_a_rank
from otel_ml_service.stored_runs.run_history import ascending
from otel_ml_service.why.coincidences import first_not_finite

steps = st.integers(0, 12)
silences = st.builds(Silence, st.integers(0, 3), steps, st.one_of(st.none(), steps))
values = st.one_of(st.sampled_from([0.5, math.nan, math.inf, -math.inf]), st.sampled_from([1.7e308, -1.7e308]))


@given(st.lists(steps), st.sets(steps), st.lists(silences, max_size=2))
def test_a_step_lacks_a_rank_where_its_row_says_so_or_one_is_silent(
    recorded: list[int], lacking: set[int], silent: list[Silence]
) -> None:
    known = frozenset(lacking)

    found = steps_without_a_rank(recorded, lacking, silent)

    assert lacking == known
    assert found == {
        step
        for step in recorded
        if step in lacking or any(one.first <= step <= (math.inf if one.last is None else one.last) for one in silent)
    }


@given(st.dictionaries(steps, values))
def test_a_metric_is_no_longer_a_number_at_the_first_step_after_one_at_which_it_was(
    series: Mapping[int, float],
) -> None:
    told = None
    was_finite = False
    for step, value in sorted(series.items()):
        if told is None and was_finite and not math.isfinite(value):
            told = step
        was_finite = was_finite or math.isfinite(value)

    assert first_not_finite(series) == told


@given(st.dictionaries(st.integers(), values))
def test_a_series_is_drawn_by_its_steps_however_its_values_came(series: Mapping[int, float]) -> None:
    by_steps = dict(sorted(series.items()))

    assert list(ascending(series)) == list(by_steps)
    assert chart("loss", "step", [Curve("loss", series)]) == chart("loss", "step", [Curve("loss", by_steps)])


@given(st.lists(values, min_size=1, max_size=60), st.integers(2, 12))
def test_of_each_stretch_of_a_curve_the_lowest_and_the_highest_point_are_drawn(series: list[float], most: int) -> None:
    points = list(enumerate(series))
    length = math.ceil(len(points) * 2 / most)
    kept = set()
    for begin in range(0, len(points), length):
        stretch = [point for point in points[begin : begin + length] if math.isfinite(point[1])]
        kept |= (
            {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])} if stretch else set()
        )

    drawn = thinned(dict(points), most)

    assert drawn == sorted(drawn)
    assert kept <= set(drawn)
    assert len(drawn) <= max(most + 2, len(kept))
