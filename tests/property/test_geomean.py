"""The geometric mean of all ranks against `statistics.geometric_mean`, however records are split, sent and repeated."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.receiver.decode import Decoder
from tests.property.test_one_reduction import observations, requests
from tests.property.test_reduction_algebra import Records, everything, one, pieces_of, reduced
from tests.strategies import Rank, Service

QUICK = settings(max_examples=60, deadline=None)
EXACTLY = 1e-12
"""Rounding of logarithms: of values as far apart as doubles can be, still eleven digits are right."""

positive = st.floats(1e-300, 1e300)
records_of = st.lists(st.lists(positive, min_size=1, max_size=6), min_size=1, max_size=6)


def near(value: float) -> object:
    return pytest.approx(value, rel=EXACTLY)


@given(records=records_of, fragments=st.integers(1, 6))
@QUICK
def test_it_is_that_of_all_records_however_they_travel(records: Records, fragments: int) -> None:
    assert one(records, "geomean", fragments=fragments) == near(statistics.geometric_mean(everything(records)))


@given(records=records_of, data=st.data())
@QUICK
def test_a_weight_counts_as_so_many_records(records: Records, data: st.DataObject) -> None:
    weights = [[float(data.draw(st.integers(0, 5))) for _ in values] for values in records]
    pairs = zip(everything(records), everything(weights), strict=True)
    repeated = [value for value, weight in pairs for _ in range(int(weight))]

    result = one(records, "geomean", weights=weights)

    assert result == (near(statistics.geometric_mean(repeated)) if repeated else None)


@given(records=records_of, data=st.data())
@QUICK
def test_the_order_of_arrival_changes_no_bit(records: Records, data: st.DataObject) -> None:
    arrivals = [observation for rank in _sent(records) for observation in rank]
    expected = _shown(arrivals)

    assert _shown(data.draw(st.permutations(arrivals))) == expected


@given(records=records_of, earlier=records_of)
@QUICK
def test_a_step_that_was_done_again_counts_once(records: Records, earlier: Records) -> None:
    service = Service()
    for attempt, part in enumerate((earlier, records)):
        ranks = [Rank(rank, instance=f"{rank}/{attempt}", attempt=attempt) for rank in range(len(part))]
        for rank, values in zip(ranks, part, strict=True):
            service.take(rank.record(0, {"m": values}, "geomean"), rank.done(0), rank.step(1, {"m": 1.0}, "geomean"))
        service.take(*(rank.bye() for rank in ranks))
    service.wait(400)

    assert service.rows()[0]["m"] == near(statistics.geometric_mean(everything(records)))


@given(value=positive, ranks=st.integers(1, 5), times=st.integers(1, 5))
@QUICK
def test_of_equal_values_it_is_that_value_to_the_bit(value: float, ranks: int, times: int) -> None:
    assert one([[value] * times] * ranks, "geomean") == value


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([4.0, 0.0], 0.0),
        ([0.0, 0.0], 0.0),
        ([math.inf, 2.0], math.inf),
        ([math.inf, 0.0], math.nan),
        ([4.0, -1.0], math.nan),
        ([-1.0, -4.0], math.nan),
        ([4.0, math.nan], math.nan),
        ([1.7e308, 1.7e308], 1.7e308),
        ([5e-324, 5e-324], 5e-324),
    ],
)
@pytest.mark.parametrize("together", [True, False], ids=["one rank", "two ranks"])
def test_zero_makes_it_zero_and_what_has_no_logarithm_makes_it_nan(
    values: list[float], expected: float, together: bool
) -> None:
    records = [values] if together else [[value] for value in values]

    assert one(records, "geomean") == pytest.approx(expected, nan_ok=True, rel=0, abs=0)


@given(records=records_of)
@QUICK
def test_it_combines_the_records_of_a_rank_and_stands_beside_others(records: Records) -> None:
    means = [statistics.geometric_mean(values) for values in records]
    values = everything(records)

    assert one(records, "geomean>max") == near(max(means))
    assert one(records, "max>geomean") == near(statistics.geometric_mean(map(max, records)))
    found = reduced(pieces_of(records, "max,geomean,min"))
    assert found == {(0, None): max(values), (1, None): near(statistics.geometric_mean(values)), (2, None): min(values)}


@given(values=st.lists(positive, min_size=2, max_size=4))
@QUICK
def test_ranks_that_say_nothing_follow_the_one_that_does(values: list[float]) -> None:
    service, ranks = Service(), [Rank(number) for number in range(len(values))]
    for rank, value in zip(ranks, values, strict=True):
        said = "geomean" if rank is ranks[0] else "mean"
        (fragment,) = rank.record(0, {"m": value}, said)
        unsaid = fragment.reduction if rank is ranks[0] else type(fragment.reduction)(unsaid=("across",))
        service.take([fragment._replace(reduction=unsaid)], rank.done(0))
    service.take(*(rank.bye() for rank in ranks))

    assert service.rows()[0] == {"m": near(statistics.geometric_mean(values))}


@pytest.mark.parametrize("many", [1, 8, 9, 40])
def test_of_many_records_of_a_rank_that_said_nothing_it_is_absent_and_that_is_said(many: int) -> None:
    values = [float(value) for value in range(1, many + 1)]
    said = list(requests(0, 2, [[("said", 2.0)]], "geomean", says_all=False))
    bare = list(requests(1, 2, [[("bare", value) for value in values]], "geomean", says_all=False))
    service, decoder = Service(), Decoder()
    for request in (*said, *bare):
        service.take(observations(decoder, request))
    service.wait(15)

    notices = [notice for notice in service.notices if "does not tell the logarithms" in notice]
    if many <= 8:
        assert service.rows()[0] == {"m": near(statistics.geometric_mean([2.0, *values]))}
    assert len(notices) == ("m" not in service.rows().get(0, {}))


def _sent(records: Records) -> list[list[object]]:
    ranks = [Rank(number) for number in range(len(records))]
    return [
        [one for value in values for one in rank.record(0, {"m": value}, "geomean")]
        for rank, values in zip(ranks, records, strict=True)
    ]


def _shown(arrivals: list[object]) -> float:
    service = Service()
    service.take(arrivals)  # type: ignore[arg-type]
    service.wait(400)
    return service.rows()[0]["m"]
