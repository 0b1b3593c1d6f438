from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.findings.step_timers import StepTimers, only_times


@pytest.mark.parametrize(
    ("known", "order"),
    [
        (("a", "b", "c"), ("untimed", "a", "b", "c")),
        (("c", "b", "a"), ("untimed", "c", "b", "a")),
        (("c", "a"), ("untimed", "c", "b", "a")),
        (("b",), ("untimed", "a", "b", "c")),
        ((), ("untimed", "a", "b", "c")),
        (("strange", "b", "a"), ("untimed", "b", "a", "c")),
    ],
)
def test_known_timers_change_places_among_themselves(known: tuple[str, ...], order: tuple[str, ...]) -> None:
    phases = ("untimed", "a", "b", "c")
    seconds = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 10.0, 20.0, 30.0]])

    found = StepTimers((0, 1), phases, seconds).in_order_of(known)

    assert found.phases == order
    assert found.seconds.tolist() == [[row[phases.index(phase)] for phase in order] for row in seconds.tolist()]


def test_what_is_no_time_is_none() -> None:
    given = np.array([0.0, 1e9, 1.001e9, -1e-9, np.inf, -np.inf, np.nan])

    assert np.isnan(only_times(given)).tolist() == [False, False, True, True, True, True, True]
