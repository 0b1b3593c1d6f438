"""Points of other SDKs that come together become what each of them becomes by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.observation import Buckets, Kind, Partials, SeriesKey, ThirdPartyPoints
from tests.strategies import START, Rank, Service, stats_of, writer

SDKS = [writer(rank) for rank in (0, 1)]
NAMES = st.lists(st.sampled_from("abcd"), min_size=1, unique=True)
KINDS: dict[str, Kind] = {"sum": "moments", "gauge": "order", "histogram": "moments", "exponential": "buckets"}
VALUES = st.one_of(st.integers(0, 9).map(float), st.sampled_from([math.nan, math.inf, -3.0]))
FEW_COUNTS = st.lists(st.integers(0, 5), min_size=2, max_size=4).map(tuple)


class Form(NamedTuple):
    """What an SDK says of its points, but for their numbers."""

    kind: Any
    temporality: Any
    monotonic: bool | None
    reduction: str | None
    has_step: bool


@st.composite
def forms(draw: st.DrawFn) -> Form:
    kind = draw(st.sampled_from([*KINDS]))
    temporality = "none" if kind == "gauge" else draw(st.sampled_from(["delta", "cumulative", "cumulative"]))
    reductions = [None, "max", "sum", "mean"] if kind in {"sum", "gauge"} else [None, "mean,p50"]
    monotonic = draw(st.booleans()) if kind == "sum" else None
    return Form(kind, temporality, monotonic, draw(st.sampled_from(reductions)), draw(st.booleans()))


@st.composite
def exports(draw: st.DrawFn) -> list[ThirdPartyPoints]:
    """Exports of several meters of two processes, in any order: restarts, repetitions, points of unequal times."""
    form = draw(forms())
    # Which samples of a step were sent again is remembered for all series of a message together.
    is_sampled = form.has_step and (form.kind == "gauge" or form.monotonic is False)
    same = draw(NAMES) if is_sampled else None
    return [draw(batches(form, number, same)) for number in range(draw(st.integers(1, 6)))]


@st.composite
def batches(draw: st.DrawFn, form: Form, number: int, same: list[str] | None) -> ThirdPartyPoints:
    names = draw(NAMES) if same is None else same
    # At one moment a series has one value: which of two would count is left open.
    seconds = draw(st.sampled_from([number, number, max(0, number - 2)])) + number / 1000
    times = [round((START + seconds + draw(st.sampled_from([0, 0, 0.5]))) * 1e9) for _ in names]
    starts = tuple(draw(st.sampled_from([0, round(START * 1e9), times[0]])) for _ in names)
    rows = [stats_of([draw(VALUES)]) for _ in names]
    step = draw(st.sampled_from([3, 3, 4])) if form.has_step else None
    return ThirdPartyPoints(
        draw(st.sampled_from(SDKS)),
        form.kind,
        form.temporality,
        form.monotonic,
        None if step is None else "step",
        step,
        None if form.reduction is None else Reduction.parse(form.reduction),
        starts,
        Partials(
            tuple(SeriesKey(name, (), KINDS[form.kind]) for name in names),
            np.array(histograms(draw, rows) if form.kind in {"histogram", "exponential"} else rows),
            np.array([[time, time] for time in times], dtype=np.int64),
            buckets(draw, form.kind, len(names)),
        ),
        draw(st.sampled_from(["", "meter"])),
    )


def histograms(draw: st.DrawFn, rows: list[list[float]]) -> list[list[float]]:
    return [[float(draw(st.integers(0, 9))), *row[1:]] for row in rows]


def buckets(draw: st.DrawFn, kind: str, count: int) -> tuple[Buckets | None, ...] | None:
    one = st.builds(Buckets, st.just(2), st.integers(0, 3), st.integers(-2, 2), FEW_COUNTS, st.just(0), st.just(()))
    found = tuple(draw(st.one_of(st.none(), one) if kind == "histogram" else one) for _ in range(count))
    return found if kind in {"histogram", "exponential"} and any(found) else None


def told(service: Service) -> Any:
    """Return the rows, and what the engine remembers, such that NaN is equal to NaN."""
    rows = {
        (axis, step, name): repr(value)
        for axis in ("step", "time")
        for step, row in service.rows(axis=axis, own=True).items()
        for name, value in row.items()
    }
    return rows, {repr(key): repr(stream) for key, stream in streams(service).items()}


def streams(service: Service) -> dict[Any, Any]:
    """Return the newest point of each stream that accumulates."""
    found = {}
    for meter, table in service.engine._third_party.streams.tables.items():
        names = [(row, name) for row, name in enumerate(table.names) if name is not None]
        for row, name in names:
            found[meter, name] = [np.asarray(part, dtype=object).tolist() for part in table.at(np.array([row]))]
    return found


def taken(sent: Sequence[ThirdPartyPoints], *, together: bool) -> Service:
    service, alive = Service(), Rank(9, role="other")
    for number, points in enumerate(sent):
        service.now = START + number
        apart = [points.some([row]) for row in range(len(points.starts))]
        service.take([points] if together else apart)
    service.wait(30, alive)
    service.take([sent[-1]] if together else [sent[-1].some([row]) for row in range(len(sent[-1].starts))])
    service.wait(30, alive)
    return service


@given(exports())
def test_points_that_come_together_give_what_each_gives_by_itself(sent: list[ThirdPartyPoints]) -> None:
    assert told(taken(sent, together=True)) == told(taken(sent, together=False))


def points_of(kind: Any, time: float, rows: list[list[float]], **more: Any) -> ThirdPartyPoints:
    """Return points of `a`, `b`, … of which nobody said how they are reduced."""
    series = tuple(SeriesKey(name, (), KINDS[kind]) for name in "abcd"[: len(rows)])
    times = np.full((len(rows), 2), round((START + time) * 1e9), dtype=np.int64)
    step, found = more.get("step"), more.get("buckets")
    axis = None if step is None else "step"
    partials = Partials(series, np.array(rows), times, found)
    return ThirdPartyPoints(SDKS[0], kind, "none", None, axis, step, None, (0,) * len(rows), partials)


def test_of_samples_of_a_closed_step_those_that_changed_are_taken_beside_those_that_did_not() -> None:
    first = points_of("gauge", 0, [stats_of([1.0]), stats_of([2.0]), stats_of([3.0])], step=3)
    closing = points_of("gauge", 1, [stats_of([1.0])], step=4)
    again = points_of("gauge", 2, [stats_of([9.0]), stats_of([2.0]), stats_of([8.0])], step=3)

    for sent in ([first, closing, again], [first, closing, first, again]):
        rows = taken(sent, together=True).rows()
        assert rows[3] == {"a": 9.0, "b": 2.0, "c": 8.0}
        assert told(taken(sent, together=True)) == told(taken(sent, together=False))


def test_a_sample_that_changed_is_taken_beside_one_that_was_sent_again_and_one_that_came_twice() -> None:
    first = points_of("gauge", 0, [stats_of([1.0]), stats_of([2.0]), stats_of([3.0])], step=3)
    closing = points_of("gauge", 1, [stats_of([1.0])], step=4)
    later = points_of("gauge", 2, [stats_of([1.0]), stats_of([9.0]), stats_of([3.0])], step=3)
    later.partials.times[0] = first.partials.times[0]  # the same point once more

    rows = taken([first, closing, later], together=True).rows()

    assert rows[3] == {"a": 1.0, "b": 9.0, "c": 3.0}


def test_scraped_histograms_with_buckets_have_quantiles_and_those_without_beside_them_have_none() -> None:
    some = (Buckets(2, 0, 0, (2, 2), 0, ()), None)
    sent = points_of("histogram", 0, [[4.0, 6.0, 1.0, 2.0, *[math.nan] * 4][:8]] * 2, buckets=some)

    service = taken([sent], together=True)
    service.wait(600)  # until the run is over
    [row] = service.rows(axis="time").values()
    names = set(row)

    assert {"a/p50", "a/p90"} < names
    assert not {"b/p50", "b/p90"} & names
