"""Rank × step: what is compared, and what of many ranks and steps is seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.report.heat_map import _colored, _ticks, heat_map
from otel_ml_service.report.rank_times import RankTimes
from otel_ml_service.stored_runs.read_spans import SpanRow
from tests.unit.otel_ml_service.report.test_page import Reader

NOWHERE: Mapping[int, str] = {}


def shown(slowdowns: Mapping[int, Mapping[int, float]], hosts: Mapping[int, str] = NOWHERE) -> dict[str, Any]:
    read = Reader(heat_map(slowdowns, "step", "trainer", hosts))
    [data] = [attributes["data-heat"] for tag, attributes in read.elements if tag == "svg"]
    found: dict[str, Any] = json.loads(data or "")
    return found


def span(name: str, rank: int, step: int, begin: int, ms: int) -> SpanRow:
    made = Span("0" * 32, "0" * 16, None, name, begin, begin + ms * 10**6, "trainer", rank, "step", step)
    [row] = SpanLines.of([made]).rows()
    return row


def test_who_works_longer_is_slow_and_who_waits_for_it_is_not() -> None:
    times = RankTimes()
    for rank in range(4):
        work = 60 if rank == 2 else 20
        times.add([span("forward", rank, 0, 0, work), span("all_reduce", rank, 0, work * 10**6, 65 - work)])

    [slow] = times.all().values()

    assert round(slow[2], 2) == 2.0
    assert [slow[rank] for rank in (0, 1, 3)] == [0.0, 0.0, 0.0]


def test_the_timer_around_others_is_not_counted_beside_them() -> None:
    times = RankTimes()
    for rank in range(3):
        work = 40 if rank == 1 else 20
        times.add([span("step", rank, 0, 0, work + 500), span("forward", rank, 0, 0, work)])

    assert round(times.all()[0][1], 2) == round(20 / 54, 2)  # measured against a tenth of the step


def test_the_newest_step_is_left_out_while_one_rank_has_told_of_it() -> None:
    times = RankTimes()
    for rank in range(2):
        times.add([span("forward", rank, 0, 0, 20)])
    times.add([span("forward", 0, 1, 10**9, 20)])

    assert list(times.all()) == [0]


def test_of_a_long_run_of_many_ranks_the_slow_step_is_kept_in_bounded_memory() -> None:
    times = RankTimes(most_cells=50, most_slowdowns=500)
    for step in range(1000):
        for rank in range(10):
            slow = (step, rank) == (101, 7)
            times.add([span("forward", rank, step, step * 10**9, 60 if slow else 20)])

    found = times.all()

    assert sum(map(len, found.values())) <= 550
    assert round(found[101][7], 2) == 2.0
    assert max(value for step, ranks in found.items() for rank, value in ranks.items() if rank != 7) == 0.0


def test_what_a_step_of_a_long_run_costs_does_not_grow_with_the_run() -> None:
    class Step(int):
        compared = 0

        def __lt__(self, other: int) -> bool:
            Step.compared += 1
            return int(self) < int(other)

    times = RankTimes(most_cells=2_000)
    for step in range(4_000):
        times.add([{**span("forward", 0, 0, 0, 20), "step": Step(step)}])

    assert Step.compared < 4_000 * 40


def test_a_row_a_rank_and_a_column_a_step() -> None:
    found = shown({step: {0: 0.0, 1: 0.5 if step == 3 else 0.0} for step in range(5)})

    assert found["rows"] == ["rank 0", "rank 1"]
    assert found["steps"] == [0, 1, 2, 3, 4]
    assert found["values"] == [[0, 0, 0, 0, 0], [0, 0, 0, 50, 0]]


def test_of_4096_ranks_the_slowest_has_a_row_of_its_own_and_none_is_left_out() -> None:
    found = shown({step: {rank: 0.8 if rank == 2049 else 0.0 for rank in range(4096)} for step in range(3)})

    assert len(found["rows"]) <= 64
    assert found["values"][found["rows"].index("rank 2049")] == [80, 80, 80]
    assert sum(row == [80, 80, 80] for row in found["values"]) == 2


def test_of_128_ranks_a_row_is_a_host_where_each_is_known_wherever_its_ranks_are() -> None:
    hosts = {rank: f"gpu-cluster-node-{rank % 16:02}" for rank in range(128)}

    found = shown({step: {rank: 0.8 if rank % 16 == 5 else 0.0 for rank in range(128)} for step in range(3)}, hosts)

    assert found["rows"][8:] == [f"…ter-node-{host:02}" for host in range(16)]
    assert [row for row, values in zip(found["rows"][8:], found["values"][8:], strict=True) if any(values)] == [
        "…ter-node-05"
    ]


def test_of_4096_ranks_a_row_is_several_hosts_and_no_rank_is_left_out() -> None:
    hosts = {rank: f"n{rank // 8}" for rank in range(4096)}

    found = shown({0: {rank: 0.8 if rank == 4095 else 0.0 for rank in range(4096)}}, hosts)

    assert len(found["rows"]) <= 64
    assert (found["rows"][8], found["rows"][-1]) == ("n0 +9", "n510 +1")
    assert found["values"][-1] == [80]


def test_names_of_rows_are_whole_however_long_they_are() -> None:
    hosts = {rank: f"gpu-cluster-node-{rank // 8:03}" for rank in range(4096)}
    steps = {0: dict.fromkeys(range(4096), 0.1)}

    of_hosts, of_ranks = shown(steps, hosts), shown({0: {0: 0.1, 1: 0.2}})

    letter = 7.5  # of 15 px on a phone
    assert max(map(len, of_hosts["rows"])) * letter < of_hosts["left"] - 6
    assert of_ranks["left"] == 84


def test_where_a_rank_has_no_host_rows_are_ranks() -> None:
    found = shown({0: dict.fromkeys(range(128), 0.1)}, dict.fromkeys(range(127), "n1"))

    assert found["rows"][8] == "0–2"


def test_of_10000_steps_one_slow_one_is_seen_and_is_the_one_that_opens() -> None:
    found = shown({step: {0: 0.0, 1: 3.0 if step == 7777 else 0.0} for step in range(10_000)})

    [column] = [place for place, value in enumerate(found["values"][1]) if value]
    assert len(found["steps"]) <= 240
    assert found["steps"][column] == 7777


def test_one_rank_alone_has_no_map() -> None:
    assert heat_map({0: {0: float("nan")}}, "step", "trainer") == ""
    assert heat_map({}, "step", "trainer") == ""


def test_only_where_columns_are_several_steps_it_is_said() -> None:
    said = "A column is the slowest of several steps."
    every_tenth = {step: {0: 0.0, 1: 0.5} for step in range(0, 1000, 10)}
    many = {step: {0: 0.0, 1: 0.5} for step in range(1000)}
    halved = RankTimes(most_cells=50, most_slowdowns=50)
    for step in range(60):
        for rank in range(2):
            halved.add([span("forward", rank, step, step * 10**9, 20)])

    assert said not in heat_map(every_tenth, "step", "trainer")
    assert said in heat_map(many, "step", "trainer")
    assert said in heat_map(halved.all(), "step", "trainer", is_thinned=halved.is_thinned)


def test_the_picture_has_its_names_on_the_left_and_its_steps_below() -> None:
    read = Reader(heat_map({10: {0: 0.0, 1: 0.5}, 20: {0: 0.25, 1: float("nan")}}, "step", "trainer"))

    texts = [(has["x"], has["y"], has["text-anchor"]) for tag, has in read.elements if tag == "text"]
    # 900 wide, less 84 of the names and 4 on the right: two columns of 406; rows of 18 from 6 on.
    assert list(zip(read.texts[:5], texts, strict=True)) == [
        ("rank 0", ("78", "19.0", "end")), ("rank 1", ("78", "37.0", "end")),
        ("10", ("287.0", "56", "middle")), ("20", ("693.0", "56", "middle")), ("step", ("492.0", "70", "middle")),
    ]  # fmt: skip
    [frame] = [has["viewbox"] for tag, has in read.elements if tag == "svg"]
    assert frame == "0 0 900 76"
    [image] = [(has["x"], has["y"], has["width"], has["height"]) for tag, has in read.elements if tag == "image"]
    assert image == ("84", "6", "812", "36")
    [cursor] = [(has["width"], has["height"]) for tag, has in read.elements if tag == "rect"]
    assert cursor == ("406.00", "18")
    data = shown({10: {0: 0.0, 1: 0.5}, 20: {0: 0.25, 1: float("nan")}})
    assert data["values"] == [[0, 25], [50, -1]]
    assert (data["left"], data["top"], data["width"], data["height"]) == (84, 6, 406.0, 18)


@pytest.mark.parametrize(("ranks", "tall", "named"), [(16, 18, 16), (17, 9, 9), (48, 9, 24), (49, 6, 17), (64, 6, 22)])
def test_rows_of_many_ranks_are_lower_and_not_all_of_them_have_a_name(ranks: int, tall: int, named: int) -> None:
    steps = {0: dict.fromkeys(range(ranks), 0.1)}

    texts = Reader(heat_map(steps, "step", "trainer")).texts

    assert shown(steps)["height"] == tall
    assert sum(text.startswith("rank ") for text in texts) == named
    assert len(shown(steps)["rows"]) == ranks


@pytest.mark.parametrize(
    ("columns", "ticks"),
    [
        (1, [(0, "middle")]),
        (2, [(0, "middle"), (1, "middle")]),
        (3, [(0, "start"), (2, "end")]),
        (7, [(0, "start"), (6, "end")]),
        (8, [(0, "start"), (2, "middle"), (4, "middle"), (6, "middle"), (7, "end")]),
    ],
)
def test_some_columns_have_their_step_below(columns: int, ticks: list[tuple[int, str]]) -> None:
    assert _ticks(columns) == ticks


def test_twice_the_usual_time_is_red_and_the_usual_time_can_hardly_be_seen() -> None:
    colors = _colored(np.array([[0.0, 1.0, 5.0, np.nan, 1 / 3, 2 / 3, -1.0]])).tolist()[0]

    assert colors == [
        [90, 140, 215, 26], [212, 56, 40, 255], [212, 56, 40, 255], [150, 156, 168, 120], [90, 140, 215, 140],
        [240, 178, 66, 235], [90, 140, 215, 26],
    ]  # fmt: skip
    assert "rgb(90 140 215 / 0.10), rgb(90 140 215 / 0.55), rgb(240 178 66 / 0.92), rgb(212 56 40 / 1.00)" in heat_map(
        {0: {0: 0.1, 1: 0.2}}, "step", "trainer"
    )


def test_of_many_steps_the_axis_says_the_first_of_a_column_and_the_last_of_all() -> None:
    every = {step: {0: 0.0, 1: 0.5} for step in range(1000)}

    texts = Reader(heat_map(every, "step", "trainer")).texts

    # 200 columns of 5 steps
    assert [text for text in texts if text.isdecimal()] == ["0", "250", "500", "750", "999"]
    assert len(shown(every)["steps"]) == 200


def test_a_rank_that_took_a_little_longer_is_measured_against_the_usual_one() -> None:
    times = RankTimes()
    for rank, ms in ((0, 100), (1, 100), (2, 150)):
        times.add([span("forward", rank, 3, 0, ms)])

    assert {rank: round(value, 6) for rank, value in times.all()[3].items()} == {0: 0.0, 1: 0.0, 2: 0.5}


def test_spans_of_one_timer_in_a_step_add_up() -> None:
    times = RankTimes()
    for rank, ms in ((0, 50), (1, 50), (2, 100)):
        times.add([span("forward", rank, 3, 0, ms), span("forward", rank, 3, 200 * 10**6, ms)])

    assert {rank: round(value, 6) for rank, value in times.all()[3].items()} == {0: 0.0, 1: 0.0, 2: 1.0}


def test_two_steps_become_the_one_in_which_a_rank_was_slower() -> None:
    times = RankTimes(most_cells=2, most_slowdowns=4)
    for step, slow in ((0, 40), (1, 60), (2, 20), (3, 80), (4, 20)):
        for rank in range(2):
            times.add([span("forward", rank, step, step * 10**9, slow if rank else 20)])

    assert times.is_thinned
    assert list(times.all()) == sorted(times.all())
    assert 3 in times.all()
    assert not RankTimes(most_cells=2, most_slowdowns=400).is_thinned
