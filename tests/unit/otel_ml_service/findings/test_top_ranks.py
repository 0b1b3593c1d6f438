"""The slowest and fastest ranks of each timer, as a table of the run."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_exporters.records import Table
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.reductions import Reductions
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.step_streams import StepStream
from otel_ml_service.aggregation.top_ranks import TopRanks
from otel_ml_service.config import ServiceConfig
from otel_ml_service.findings.extremes import Extreme, Extremes
from otel_ml_service.findings.step_timers import StepTimers
from tests.strategies import Rank, Service

NAN = float("nan")


def timed(service: Service, ranks: list[Rank], numbers: range, *, slow: int | None = None) -> None:
    """Each rank takes as many tenths of a second as its number in `forward`, one more if it is `slow`."""
    for step in numbers:
        for number, rank in enumerate(ranks):
            seconds = 0.1 * number + 10.0 + (1.0 if number == slow else 0.0)
            service.take(rank.step(step, {"time/forward": seconds, "time/data": 1.0}, "sum>max"))
        service.wait(1, *ranks)


def tables(service: Service) -> list[Table]:
    return [one for one in service.records if isinstance(one, Table) and one.name == "otel_ml/top_ranks"]


@pytest.mark.feature("M7", "better", "the N slowest and fastest ranks of every timer; no collective, nothing on a rank")
@pytest.mark.feature("M6", "better", "min and max of each timer with their ranks, in a table of the run")
def test_every_hundred_steps_the_slowest_and_fastest_ranks_of_each_timer_are_a_table() -> None:
    service = Service(EngineSettings(top_ranks=2))
    ranks = [Rank(rank, world_size=4) for rank in range(4)]

    timed(service, ranks, range(101))

    [table] = tables(service)
    assert (table.step, table.columns) == (99, ("timer", "which", "place", "rank", "s per step", "steps"))
    assert [row[:4] for row in table.rows] == [
        ("forward", "slowest", 1, 3),
        ("forward", "slowest", 2, 2),
        ("forward", "fastest", 1, 0),
        ("forward", "fastest", 2, 1),
        ("data", "slowest", 1, 0),
        ("data", "slowest", 2, 1),
        ("data", "fastest", 1, 0),
        ("data", "fastest", 2, 1),
    ]
    assert [row[4] for row in table.rows[:4]] == pytest.approx([10.3, 10.2, 10.0, 10.1])
    assert {row[5] for row in table.rows} == {100}
    assert service.notices == [
        "Ranks of role 'trainer' in 'forward', step 0 to 99: slowest 3 (10.3 s), 2 (10.2 s); "
        "fastest 0 (10 s), 1 (10.1 s). (otel-ml explain straggler)"
    ]


def test_the_last_steps_have_their_table_when_the_run_ends() -> None:
    service = Service(EngineSettings(top_ranks=1))
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    timed(service, ranks, range(7), slow=0)

    service.take(*[rank.bye() for rank in ranks])
    service.wait(10)

    [table] = tables(service)
    assert (table.step, table.rows[0][:4], table.rows[0][5]) == (6, ("forward", "slowest", 1, 0), 7)


def test_a_line_is_written_when_another_rank_is_the_slowest_and_not_for_every_table() -> None:
    service = Service(EngineSettings(top_ranks=1))
    ranks = [Rank(rank, world_size=3) for rank in range(3)]

    timed(service, ranks, range(200))
    timed(service, ranks, range(200, 300), slow=0)

    assert len(tables(service)) == 3
    said = [notice for notice in service.notices if notice.startswith("Ranks of role")]
    assert [line.partition("slowest ")[2][0] for line in said] == ["2", "0"]


def test_of_ranks_that_take_turns_a_hundred_lines_are_said_and_every_table_is_written() -> None:
    output = Output()
    top, stream = TopRanks(output, 1), StepStream("trainer", "step", Reductions(), {})

    for step in range(150):
        seconds = np.array([[1.0], [2.0]]) if step % 2 else np.array([[2.0], [1.0]])
        top.add(stream, step, 0, StepTimers((0, 1), ("forward",), seconds))
        top.publish(stream)

    assert len(output.records) == 150
    assert len([notice for notice in output.notices if notice.startswith("Ranks of role")]) == 100


def test_nothing_of_it_is_published_where_nobody_asked() -> None:
    service = Service()
    ranks = [Rank(rank, world_size=2) for rank in range(2)]

    timed(service, ranks, range(101))

    assert tables(service) == []


def test_a_rank_counts_by_the_steps_in_which_it_had_the_timer() -> None:
    extremes = Extremes(3)
    extremes.add(StepTimers((0, 1), ("eval",), np.array([[4.0], [1.0]])))
    extremes.add(StepTimers((1, 0, 7), ("eval", "load"), np.array([[3.0, 1.0], [NAN, NAN], [float("inf"), NAN]])))

    assert extremes.take() == [
        Extreme("eval", "slowest", 1, 0, 4.0, 1),
        Extreme("eval", "slowest", 2, 1, 2.0, 2),
        Extreme("eval", "fastest", 1, 1, 2.0, 2),
        Extreme("eval", "fastest", 2, 0, 4.0, 1),
    ]
    assert extremes.take() == []


def test_the_variable_and_the_file_set_how_many(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("config") / "otel-ml.yaml"
    file.write_text("top_ranks: 3\n")

    assert ServiceConfig.load(environ={"OTEL_ML_TOP_RANKS": "5"}).top_ranks == 5
    assert ServiceConfig.load(environ={}, file=file).top_ranks == 3
    assert ServiceConfig.load(environ={}).top_ranks == 0
