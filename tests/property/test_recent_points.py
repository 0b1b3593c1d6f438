"""Points that came once are known again, however they are grouped then, also after a restart."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.point_identities import SeriesOrigin
from otel_ml_service.aggregation.recent_points import RecentPoints

SPAN_S = 10.0
SHAPES: dict[tuple[SeriesKey, ...], Shape] = {}


class Sent(NamedTuple):
    """Points of some series of a meter, each with its own start and time; `left_out` there is no room for."""

    after: float
    scope: str
    step: int | None
    points: tuple[tuple[str, int, int], ...]
    left_out: frozenset[int]


MOMENTS = st.sampled_from([(0, 1), (0, 1), (0, 2), (1, 2)])
POINTS = st.lists(st.tuples(st.sampled_from("abcd"), MOMENTS), min_size=1, unique_by=lambda point: point[0]).map(
    lambda found: tuple((name, *moment) for name, moment in found)
)
SENT = st.builds(
    Sent,
    st.sampled_from([0.0, 0.0, 1.0, 9.0, 10.0, 25.0]),
    st.sampled_from(["", "meter"]),
    st.sampled_from([None, 3]),
    POINTS,
    st.frozensets(st.integers(0, 3), max_size=2),
)


class Reference:
    """Two sets of points: what came in this span, and in the one before."""

    def __init__(self) -> None:
        self.spans: list[set[object]] = [set(), set()]
        self.began: float | None = None

    def news(self, sent: Sent, rows: list[int], now: float) -> list[int]:
        if self.began is None:
            self.began = now
        elif now >= self.began + SPAN_S:
            self.spans, self.began = [self.spans[1], set()], now
        points = {row: (sent.scope, sent.step, sent.points[row]) for row in rows}
        found = [row for row, point in points.items() if not any(point in span for span in self.spans)]
        self.spans[1].update(points[row] for row in found)
        return found


def news(recent: RecentPoints, sent: Sent, rows: list[int], now: float) -> list[int]:
    names, starts, times = zip(*sent.points, strict=True)
    series = tuple(SeriesKey(name, (), "order") for name in names)
    shape = SHAPES.setdefault(series, Shape(len(SHAPES), series))
    return recent.news(SeriesOrigin(0, sent.scope, "time"), shape, sent.step, starts, times, rows, now)


@given(st.lists(SENT, max_size=12), st.integers(0, 12))
def test_a_point_is_known_for_one_to_two_spans_however_it_is_grouped(every: list[Sent], stopped: int) -> None:
    recent, reference, now = RecentPoints(SPAN_S), Reference(), 100.0
    written: dict[int, list[bytes]] = {}

    for number, sent in enumerate(every):
        now += sent.after
        rows = [row for row in range(len(sent.points)) if row not in sent.left_out]
        assert news(recent, sent, rows, now) == reference.news(sent, rows, now)
        if number % 2 or number == stopped:  # a commit
            for generation, added in recent.take_fresh():
                written.setdefault(generation, []).append(added)
        if number == stopped:
            state, recent = recent.state(), RecentPoints(SPAN_S)
            newest = {one: chunks for one, chunks in written.items() if one >= int(str(state[0])) - 1}
            recent.restore(state, newest)


def test_series_that_are_never_the_same_are_bounded_as_moments_are() -> None:
    recent = RecentPoints(SPAN_S, most=100)

    for number in range(1_000):
        shape = Shape(number, tuple(SeriesKey(f"{number}/{name}", (), "order") for name in "abcd"))
        recent.news(SeriesOrigin(0, "", "time"), shape, None, (0,) * 4, (number,) * 4, [0, 1, 2, 3], 1.0)

    assert 0 < len(recent) <= 2 * 100 // 4
