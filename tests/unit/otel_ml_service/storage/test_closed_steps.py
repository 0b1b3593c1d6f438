"""Closed steps in `run.db`: what a start leaves there, a late value finds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.storage.salvage import suspect
from tests.strategies import START, Rank

SETTINGS = EngineSettings(retained_steps=4)


def committed(outbox: Outbox, engine: Engine, observations: Sequence[Observation], now: float) -> Sequence[Record]:
    for observation in observations:
        engine.observe(observation, now)
    engine.advance(now)
    outcome = engine.take()
    outbox.commit(Commit(outcome.records, outcome.changes))
    return outcome.records


def recorded(path: Path, steps: int) -> Rank:
    """Record steps into a run's file, a commit each, and close it; return their rank."""
    rank, outbox = Rank(0), Outbox(path)
    engine = Engine("exp", SETTINGS, kept=outbox.entry)
    for step in range(steps):
        committed(outbox, engine, rank.step(step, {"x": 1.0}), START + step / 10)
    outbox.close()
    return rank


def amended(path: Path, rank: Rank) -> list[tuple[int, dict[str, float]]]:
    """Start with the file, let two late values come, and return what was amended."""
    outbox = Outbox(path)
    engine = Engine("exp", SETTINGS, outbox.state(), kept=outbox.entry)
    now = START + 1_000
    found = [*committed(outbox, engine, rank.step(3, {"x": 5.0, "y": 2.0}), now)]
    for second in range(12):
        found += committed(outbox, engine, rank.inside(0, axis="heartbeat"), now + second)
    outbox.close()
    return [(record.step, dict(record.values)) for record in found if isinstance(record, StepRecord)]


def test_a_late_value_finds_its_step_in_the_file_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.db"
    rank = recorded(path, 100)

    assert amended(path, rank) == [(3, {"x": 3.0, "y": 2.0})]


def test_a_start_takes_as_much_of_a_long_run_as_of_a_short_one(tmp_path: Path) -> None:
    short, long = tmp_path / "a" / "run.db", tmp_path / "b" / "run.db"
    recorded(short, 20)
    recorded(long, 500)

    kinds = []
    for path in (short, long):
        with closing(Outbox(path)) as outbox:
            kinds.append(Counter(key.partition("/")[0] for key in outbox.state()))
    assert (kinds[0].pop("training"), kinds[1].pop("training")) == (1, 8)  # of 64 steps each, up to 4,096
    assert kinds[0] == kinds[1]


def test_a_rescued_file_still_has_its_closed_steps(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.db"
    rank = recorded(path, 100)
    suspect(path)

    assert amended(path, rank) == [(3, {"x": 3.0, "y": 2.0})]


def test_where_the_points_of_a_step_are_damaged_what_it_has_is_too_late_and_the_rest_lands(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.db"
    rank = recorded(path, 100)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE engine SET value = x'00' WHERE key = 'disk/points/0000000003/0'")

    assert amended(path, rank) == [(3, {"y": 2.0})]
    with closing(Outbox(path)) as rescued:  # it was found damaged; what was open is known all the same
        assert rescued.state()
        assert rescued.base == 0
