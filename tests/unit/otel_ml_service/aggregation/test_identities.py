"""Identities of points without a running number: found one by one or together, they are the same, and all differ."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.point_identities import PointIdentities, SeriesOrigin
from otel_ml_service.aggregation.points import SeriesKey

SERIES = tuple(SeriesKey(name, attributes, "order") for name in "ab" for attributes in ((), (("task", "math"),)))
MOMENTS = st.tuples(*[st.sampled_from([0, 1, 2**63, 2**64 - 1])] * 2)


def identity(place: SeriesOrigin, series: SeriesKey, step: int | None, start: int, time: int) -> bytes:
    """Return what identifies a point that came by itself."""
    [found] = PointIdentities().of_all(place, Shape(0, (series,)), step, [start], [time])
    return found


@given(
    st.builds(SeriesOrigin, st.integers(0, 3), st.sampled_from(["", "a"]), st.sampled_from(["step", "eval"])),
    st.integers(0, 3),
    st.lists(MOMENTS, min_size=4, max_size=4),
)
def test_points_found_together_have_the_identities_they_have_one_by_one(
    place: SeriesOrigin, step: int, moments: list[tuple[int, int]]
) -> None:
    starts, times = zip(*moments, strict=True)
    identities = PointIdentities()

    for _ in range(2):  # the second time from what is remembered
        found = identities.of_all(place, Shape(0, SERIES), step, starts, times)

        rows = zip(SERIES, starts, times, strict=True)
        assert found == [identity(place, series, step, *moment) for series, *moment in rows]
        assert len(set(found)) == len(SERIES)


def test_writer_scope_axis_series_step_and_times_each_tell_points_apart() -> None:
    every = {
        identity(SeriesOrigin(writer, scope, axis), series, step, start, time)
        for writer in (0, 1)
        for scope in ("", "a")
        for axis in ("step", "eval")
        for series in SERIES
        for step in (None, 0, 1)
        for start in (0, 1)
        for time in (0, 1)
    }

    assert len(every) == 2 * 2 * 2 * 4 * 3 * 2 * 2
