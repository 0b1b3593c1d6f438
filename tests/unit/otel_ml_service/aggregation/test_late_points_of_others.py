"""Points of another SDK that come when of their window only its names are known (docs/protocol.md §5.6)."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.aggregation.observation import Partials, SeriesKey, ThirdPartyPoints
from otel_ml_service.aggregation.points import single
from otel_ml_service.aggregation.settings import EngineSettings
from tests.sdk import Sdk
from tests.strategies import START, Rank, Service, cumulative, writer

OTHER = writer(role="other")


def increases(values: dict[str, float], at: float) -> ThirdPartyPoints:
    """Return by how much counters grew in the second before; each began a nanosecond after the one before it."""
    keys, time_ns = tuple(SeriesKey(name, (), "moments") for name in values), round(at * 1e9)
    partials = Partials(
        keys, np.concatenate([single(value) for value in values.values()]), np.array([[time_ns, time_ns]] * len(keys))
    )
    starts = tuple(time_ns - 10**9 + place for place in range(len(keys)))
    return ThirdPartyPoints(OTHER, "sum", "delta", True, None, None, None, starts, partials, "lib")


def test_of_what_comes_late_the_new_names_land_and_the_rest_is_handed_over_as_it_was_sent() -> None:
    service = Service(EngineSettings(retained_steps=2, closed_bytes=0))
    for _ in range(8):
        service.now += 10.0
        service.take([increases({"a": 10.0}, service.now - 1.0)])
    service.wait(40)

    service.take([increases({"b": 20.0, "a": 30.0, "c": 40.0}, START + 15.0)])
    service.wait(30)

    assert service.rows(axis="time", role="other")[0] == {"other/a/rate": 1.0, "other/b/rate": 2.0, "other/c/rate": 4.0}
    [late] = [one for outcome in service.outcomes for one in outcome.too_late if isinstance(one, ThirdPartyPoints)]
    assert late == increases({"a": 30.0}, START + 15.0)._replace(partials=late.partials, starts=late.starts)
    assert late.starts == (round((START + 14.0) * 1e9) + 1,)
    assert (late.partials.series, late.partials.unpack().stats[:, 1].tolist()) == (
        (SeriesKey("a", (), "moments"),),
        [30.0],
    )
    assert service.engine.status.lost == {"too_late": 1}


@pytest.mark.parametrize("reduction", [None, "max", "rank", "sum", "last"])
@pytest.mark.parametrize("kind", ["gauge", "sum"])
def test_what_comes_too_late_or_is_done_again_is_in_the_account_whichever_instrument_it_is_of(
    kind: str, reduction: str | None
) -> None:
    service, ours = Service(EngineSettings(retained_steps=2, closed_bytes=0)), Rank(0)

    def sent(instance: str, step: int, attempt: int, value: float) -> ThirdPartyPoints:
        source = writer(1, instance=instance, attempt=attempt)
        temporality = "none" if kind == "gauge" else "cumulative"
        return cumulative(
            source,
            "m",
            value,
            start=START,
            time=service.now,
            step=step,
            kind=kind,
            temporality=temporality,
            reduction=reduction,
        )

    for step in range(8):
        service.take([sent("old", step, 0, 1.0)], ours.step(step, {"x": 1.0}))
        service.now += 1.0
    service.wait(20, ours)
    service.take([sent("old", 0, 0, 5.0)])
    account = service.engine.status
    assert (account.lost, account.recorded) == ({"too_late": 1}, 8 + 1), "what ours recorded does not count as lost"

    service.take([sent("old", 8, 0, 1.0)], [sent("new", 8, 1, 2.0)])
    service.wait(1)
    service.restart()

    account = service.engine.status
    assert (account.superseded, account.recorded) == (1, 8 + 2)


def test_of_a_rank_that_comes_when_the_run_has_ended_the_newest_step_is_corrected_like_those_before_it() -> None:
    service, first, second = Service(), Sdk(0), Sdk(1)
    for step in range(3):
        first.meter("a").create_gauge("l").set(0.0, {"ml.step": step})
        first.export(service)
    service.wait(400)
    assert service.engine.status.state == "finished"

    for step in range(3):
        second.meter("a").create_gauge("l").set(4.0, {"ml.step": step})
        second.export(service)
    service.wait(400)

    assert service.rows() == {step: {"l": 2.0} for step in range(3)}
    assert service.engine.status.state == "finished"
