"""What is found out quickly of a long run is what looking at each step says."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.stored_runs.missing_ranks import Silence, steps_without_a_rank
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
