"""Where the time of a run goes, and its findings in a line each."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from otel_ml_exporters.records import JsonValue, Table
from otel_ml_service.cli.time_account import finding_lines, time_account
from otel_ml_service.stored_runs.run_history import History, SeriesName


def history_of(place: str = "", **timers: tuple[Mapping[int, float], Mapping[int, float]]) -> History:
    found = History()
    for name, (seconds, ranks) in timers.items():
        found.series[SeriesName("step", f"{place}time/exposed/{name}")] = dict(seconds)
        found.series[SeriesName("step", f"{place}time/exposed/{name}/rank")] = dict(ranks)
    return found


def test_shares_are_of_all_that_was_exposed_and_whose_is_who_was_in_front_for_longest() -> None:
    history = history_of(
        forward=({0: 1.0, 1: 1.0, 2: 4.0, 3: math.nan}, {0: 0.0, 1: 0.0, 2: 3.0, 3: math.inf}),
        save=({2: 2.0}, {2: 1.0}),
    )

    found = time_account(history)

    assert [(one.place, one.phase, one.seconds, one.share, one.rank) for one in found] == [
        ("", "forward", 2.0, 0.75, 3), ("", "save", pytest.approx(2 / 3), 0.25, 1),
    ]  # fmt: skip
    assert {one.last for one in found} == {2}


def test_each_role_has_its_own_shares_and_a_timer_without_ranks_has_none() -> None:
    history = history_of("generator/", work=({0: 3.0}, {0: 1.0}))
    history.series.update(history_of(forward=({0: 0.0}, {0: 1.0})).series)
    history.series[SeriesName("step", "time/exposed/other")] = {0: 5.0}

    found = {(one.place, one.phase): (one.seconds, one.share) for one in time_account(history)}

    assert found == {("generator/", "work"): (3.0, 1.0), ("", "forward"): (0.0, 0.0)}


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"kind": "stage", "place": "stage 2", "since": 7}, "stage 2 has more work than the others, since step 7"),
        ({"kind": "shape", "place": "nobody", "phase": "forward", "since": 7, "until": 7},
         "nobody is slow: forward go with the shape of the data, step 7"),
        ({"kind": "shape", "place": "nobody", "phase": "forward", "amount": "tokens", "since": 7},
         "nobody is slow: forward go with tokens, since step 7"),
        ({"kind": "silent", "rank": 3, "since": 7}, "rank 3 silent, since step 7"),
        ({"kind": "slow", "rank": 3, "since": 7, "s per step": 0.02, "s saved per step": 0.0},
         "rank 3 slow, since step 7: +20 ms a step"),
        ({"kind": "slow", "rank": 3, "since": 7, "s per step": 0.02, "s saved per step": 0.01, "others wait": "no"},
         "rank 3 slow, since step 7: +20 ms a step of its own, most ranks do not wait for it"),
        ({"kind": "slow", "rank": 3, "since": 7, "s saved per step": 0.01}, "rank 3 slow, since step 7"),
        ({"kind": "load", "place": "rank 1", "given": "many", "amount": "tokens", "since": 7},
         "rank 1 had many × the tokens of the others, since step 7"),
    ],
)  # fmt: skip
def test_a_finding_is_a_line(cells: dict[str, JsonValue], said: str) -> None:
    table = Table(1, 0.0, "otel_ml/findings", "step", 80, ("level", *cells), (("warning", *cells.values()),))

    assert list(finding_lines(table)) == [f"warning: {said}"]
