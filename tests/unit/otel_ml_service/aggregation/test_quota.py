"""What an engine holds is bounded: by each limit, and over any number of steps."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from otel_ml_exporters.records import Params, Summary
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.fold import COUNT
from otel_ml_service.aggregation.observation import Partials, SeriesKey, ThirdPartyPoints
from otel_ml_service.aggregation.points import single
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.training_clock import MAX_ENTRIES
from tests.strategies import START, Rank, Service, buckets_of, writer

SCRAPER = writer(role="gpu")


def gauge(value: float, time: float, step: int | None = None) -> ThirdPartyPoints:
    time_ns = round(time * 1e9)
    partials = Partials((SeriesKey("power", (), "order"),), single(value), np.array([[time_ns, time_ns]]))
    axis = None if step is None else "step"
    return ThirdPartyPoints(SCRAPER, "gauge", "none", None, axis, step, None, (0,), partials)


def dropped(service: Service) -> dict[str, int]:
    return dict(service.engine.status.lost)


def test_series_beyond_the_limit_are_left_out_counted_and_said_and_the_others_go_on() -> None:
    service, rank = Service(EngineSettings(series=3)), Rank()
    for step in range(4):
        service.take(rank.step(step, {"loss": 1.0, f"grad/{step}": 2.0}))
    service.take(rank.bye())

    names = {name for row in service.rows().values() for name in row if "otel_ml/" not in name}
    assert names == {"loss", "grad/0", "grad/1"}
    assert {step for step, row in service.rows().items() if "loss" in row} == set(range(4))
    assert dropped(service) == {"too many series": 2}
    assert [notice for notice in service.notices if "OTEL_ML_SERIES_MAX" in notice] == [
        "More than 3 series are recorded (OTEL_ML_SERIES_MAX); 'grad/2' and further ones are left out and counted. "
        "Is a step or an id part of a name or an attribute? (otel-ml explain run-too-large)"
    ]


def test_axes_beyond_the_limit_are_left_out_and_the_steps_of_the_others_still_close() -> None:
    service, rank = Service(EngineSettings(axes=2)), Rank()
    for number in range(4):
        service.take(rank.step(number, {"loss": 1.0}))
        service.take(rank.step(0, {"reward": 1.0}, axis=f"episode{number}"))
    service.take(rank.bye())

    assert {step for step, row in service.rows().items() if "loss" in row} == set(range(4))
    assert dropped(service) == {"too many axes": 3}
    assert any("More than 2 axes" in notice for notice in service.notices)


def test_processes_beyond_the_limit_are_left_out_and_hold_nothing_up() -> None:
    service, first, other = Service(EngineSettings(writers=1)), Rank(0), Rank(1)
    for step in range(3):
        service.take([*first.step(step, {"loss": 1.0}), *other.step(step, {"loss": 3.0})])
    service.take(first.bye())

    assert [row["loss"] for row in service.rows().values()] == [1.0, 1.0, 1.0]
    assert dropped(service) == {"too many processes": 3}


def test_what_is_left_out_counts_in_values_and_once() -> None:
    service, rank = Service(EngineSettings(series=1, axes=1)), Rank()
    of_series = rank.record(0, {"loss": [1.0, 2.0], "more": [1.0, 2.0, 3.0]}, "p50")
    of_axis = rank.record(0, {"reward": [1.0, 2.0, 3.0, 4.0]}, axis="episode")
    service.take(of_series, of_series, of_axis, of_axis, rank.bye())

    assert dropped(service) == {"too many series": 3, "too many axes": 4}
    assert service.engine.status.recorded == 9  # 2 are there


def test_what_processes_beyond_the_limit_have_recorded_counts_as_recorded_and_lost() -> None:
    service, first, other = Service(EngineSettings(writers=1)), Rank(0), Rank(1)
    service.take(first.step(0, {"loss": 1.0}), other.record(0, {"loss": [1.0, 2.0, 3.0]}), first.bye(), other.bye())

    assert dropped(service) == {"too many processes": 3}
    assert service.engine.status.recorded == 4


@pytest.mark.parametrize(("temporality", "values"), [("delta", 7), ("cumulative", 1)])
def test_a_histogram_of_another_program_is_left_out_with_what_it_counts(temporality: str, values: int) -> None:
    service, rank = Service(EngineSettings(axes=1)), Rank()
    service.take(rank.step(0, {"loss": 1.0}))
    stats = single(2.0)
    stats[0, COUNT] = 7
    point = gauge(2.0, START)._replace(
        kind="histogram", temporality=temporality, partials=gauge(2.0, START, 0).partials._replace(stats=stats)
    )
    service.take([point], rank.bye())

    assert dropped(service) == {"too many axes of other programs": values}
    assert service.engine.status.recorded == 1 + values


def test_what_was_left_out_is_still_counted_after_a_restart() -> None:
    service, rank = Service(EngineSettings(series=1)), Rank()
    service.take(rank.step(0, {"a": 1.0, "b": 1.0}))
    service.restart()

    assert dropped(service) == {"too many series": 1}


def test_parameters_beyond_the_limit_are_left_out_and_said() -> None:
    service, rank = Service(EngineSettings(params=2)), Rank()
    service.take(rank.event("ml.params", {"a": 1, "b": {"c": 2, "d": 3}}))

    assert [record.params for record in service.records if isinstance(record, Params)] == [{"a": 1, "b": {"c": 2}}]
    assert any("More than 2 parameters" in notice and "'b.d'" in notice for notice in service.notices)


def test_however_many_parameters_are_beyond_the_limit_that_is_said_once() -> None:
    service, rank = Service(EngineSettings(params=2)), Rank()
    service.take(rank.event("ml.params", {f"p{number}": number for number in range(4)}))
    service.restart()
    service.take(rank.event("ml.params", {"q": 4}))

    said = [notice for notice in service.notices if "too-many-parameters" in notice]
    assert said == [
        "More than 2 parameters are logged; 'p2' and others are left out. (otel-ml explain too-many-parameters)"
    ]


def test_summaries_beyond_the_limit_are_published_with_the_rank_in_their_name() -> None:
    service, ranks = Service(EngineSettings(summaries=2)), [Rank(rank, world_size=3) for rank in range(3)]

    service.take(*[rank.event("ml.summary", {"final": 0.5}) for rank in ranks])
    service.take(*[rank.bye() for rank in ranks])

    found = [record.values for record in service.records if isinstance(record, Summary)]
    assert found[:2] == [{"final": 0.5}, {"final/rank_2": 0.5}]
    assert not any("final" in values for values in found[2:])


def test_identities_are_forgotten_sooner_where_more_come_than_can_be_remembered() -> None:
    engine = Engine("exp", EngineSettings(identities=100))
    for number in range(1000):
        engine.observe(gauge(1.0, START + number, number), START)

    assert 0 < len(engine._run.recent_points) <= 200


class Sizes:
    """How many things an engine holds, by where."""

    def __init__(self, engine: Engine) -> None:
        run = engine._run
        attempts = list(run.step_streams)
        self.found = {
            "open units": sum(len(attempt.open) for attempt in attempts),
            "retained units": sum(len(attempt.retained) for attempt in attempts),
            "known steps": max(len(attempt.known) for attempt in attempts),
            "gaps": max((len(writer.received) for writer in run.writers), default=0),
            "parts": sum(len(writer.parts) for writer in run.writers),
            "waiting manifests": sum(len(p.watermarks) for writer in run.writers for p in writer.progress.values()),
            "shapes": len(run.shapes._by_series),
            "combinations": max(len(known._seen) + len(known._plans) for known in run.step_streams.reductions.values()),
            "identities": len(run.recent._young) + len(run.recent._old),
            "moments": len(run.recent_points),
            "streams": engine._third_party.streams.count,
            "said": len(run.output.said),
            "compared": len(engine._snapshot._written),
            "retained bytes": run.retained_bytes,
            "open bytes": run.open_bytes,
        }


def test_any_number_of_steps_leaves_an_engine_as_large_as_it_was() -> None:
    """Sparse steps, gaps in what arrives, an axis beside, a rank that misses steps: after 1,500 as after 3,000."""
    settings = EngineSettings(retained_steps=8, closed_bytes=20_000, identity_memory_s=100.0)
    engine = Engine("exp", settings)
    ranks, evaluator = [Rank(number) for number in range(2)], Rank(7, role="evaluator")
    entries: dict[str, bytes] = {}
    now, sizes, stored, written = START, [], [], defaultdict[int, Counter[str]](Counter)
    for step in range(3_000):
        now += 1.0
        for rank in ranks:
            rank.clock = now
            sent = [*rank.inside(10 * step), *rank.step(10 * step, {"loss": 1.0, "time/step": 0.1})]
            for observation in sent[: 2 if rank is ranks[1] and step % 50 == 7 else None]:
                engine.observe(observation, now)
        if step % 100 == 0:
            for observation in evaluator.step(step, {"accuracy": 0.5}, axis="eval"):
                engine.observe(observation, now)
        engine.observe(gauge(1.0, now), now)
        engine.advance(now)
        if step % 10 != 9:
            continue
        for key, value in engine.take().changes.items():
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
                written[step // 500][key.removeprefix("disk/").partition("/")[0]] += len(value)
        if step in {1_499, 2_999}:
            sizes.append(Sizes(engine).found)
            names = [len(entries.pop(key)) for key in list(entries) if key.startswith("disk/names/")]
            assert sum(names) <= 10 * step
            clock = sum(key.startswith("training/") for key in entries)
            assert clock == -(-(step + 1) // 64)
            stored.append((len(entries) - clock, sum(map(len, entries.values()))))

    halfway, end = sizes
    assert {name: (halfway[name], count) for name, count in end.items() if count > 1.1 * halfway[name] + 64} == {}
    assert len(engine._run.training._entries) <= MAX_ENTRIES
    assert stored[1][0] <= stored[0][0] + 16
    assert stored[1][1] <= 2 * stored[0][1]
    grown = {kind for kind, size in written[5].items() if size > 1.3 * written[1][kind]}
    assert grown == {"lane", "writer", "said"}  # which have the gaps between steps and of what is missing, up to limits


def test_what_an_open_step_holds_of_a_quantile_counts_with_its_buckets() -> None:
    def held(values: list[float]) -> int:
        service = Service()
        service.take(Rank(0, world_size=2).record(0, {"x": values}, "p50"))
        return service.engine.status.open_bytes

    buckets = buckets_of([10.0**n for n in range(-10, 10)])
    more = len(buckets.positive) - len(buckets_of([1.0]).positive)

    assert more > 50
    assert held([10.0**n for n in range(-10, 10)]) - held([1.0]) == 8 * more
