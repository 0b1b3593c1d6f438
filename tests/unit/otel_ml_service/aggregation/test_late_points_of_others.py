"""Points of another SDK that come when of their window only its names are known (docs/protocol.md §5.6)."""

from __future__ import annotations

import numpy as np

from otel_ml_service.aggregation.observation import Partials, SeriesKey, ThirdPartyPoints
from otel_ml_service.aggregation.points import single
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Service, writer

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
