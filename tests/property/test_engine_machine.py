"""The engine as a state machine: any arrival, duplicates, splits, losses, restarts of the service."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from otel_ml_exporters.records import StepRecord
from otel_ml_service.aggregation.observation import Fragment, Observation
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service, integers, split

REDUCTIONS = ("mean", "sum", "min", "max", "count", "std", "sum>max,mean", "rank", "argmax", "mean,last", "p50")

records = integers | st.lists(integers, min_size=1, max_size=3)
"""Of one metric, by one rank, in one step."""


def comparable(service: Service) -> list[tuple[object, ...]]:
    """Return the rows as something `==` can compare: NaN equals NaN, counters of the service left out."""
    return [
        (
            record.role,
            record.axis,
            record.step,
            record.attempt,
            record.amendment,
            {n: repr(v) for n, v in sorted(record.values.items()) if "otel_ml/" not in n},
        )
        for record in service.records
        if isinstance(record, StepRecord)
    ]


@st.composite
def jobs(draw: st.DrawFn) -> list[list[Observation]]:
    """Draw what each writer of a small job sends, in the order it sends it."""
    world = draw(st.integers(1, 4))
    steps = draw(st.integers(1, 5))
    first = draw(st.integers(0, len(REDUCTIONS) - 4))
    streams = []
    for number in range(world):
        rank = Rank(number, world_size=world)
        sent: list[Observation] = []
        for step in range(steps):
            for name in draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3)):
                reduction = REDUCTIONS["abcd".index(name) + first]
                sent += rank.record(step, {name: draw(records), f"{name}2": draw(records)}, reduction)
            sent += rank.done(step)
        streams.append(sent + rank.bye())
    return streams


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[Observation], list[Observation]]:
    """Draw a job, and an order of arrival with splits and duplicates."""
    streams = draw(jobs())
    sent = [observation for stream in streams for observation in stream]
    arrived: list[Observation] = []
    for observation in sent:
        if isinstance(observation, Fragment) and draw(st.booleans()):
            arrived += split(observation, 1)
        else:
            arrived.append(observation)
    arrived += draw(st.lists(st.sampled_from(arrived), max_size=5))
    return sent, draw(st.permutations(arrived))


def deliver(observations: list[Observation], batch: int, *, restart: bool = False) -> Service:
    service = Service()
    for start in range(0, len(observations), batch):
        service.take(observations[start : start + batch])
        if restart:
            service.restart()
    return service


SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@given(arrivals(), st.integers(1, 20))
@SLOW
def test_any_order_of_arrival_gives_the_rows_of_the_order_sent(
    job: tuple[list[Observation], list[Observation]], batch: int
) -> None:
    sent, arrived = job

    assert sorted(comparable(deliver(arrived, batch)), key=repr) == sorted(comparable(deliver(sent, 1000)), key=repr)
    assert not any(row[4] for row in comparable(deliver(arrived, batch)))


@given(arrivals(), st.integers(1, 7))
@SLOW
def test_a_restart_of_the_service_anywhere_changes_nothing(
    job: tuple[list[Observation], list[Observation]], batch: int
) -> None:
    _, arrived = job

    through, restarted = deliver(arrived, batch), deliver(arrived, batch, restart=True)

    assert list(map(repr, restarted.records)) == list(map(repr, through.records))  # NaN is equal to itself here
    assert restarted.state.keys() == through.state.keys()
    assert restarted.engine.status.counts == through.engine.status.counts
    assert restarted.notices == through.notices


def account(service: Service) -> tuple[object, ...]:
    """Return what a status says of all writers: counted as they change, or all anew after a restart."""
    status, facts = service.engine.status, service.engine.facts
    said = (status.writers, status.writers_live, status.ranks, status.left, status.last_writer, facts)
    return *said, status.recorded, status.unreceived, status.lost, status.overhead_s, status.duration_s


class EngineMachine(RuleBasedStateMachine):
    """Ranks record, requests are reordered, duplicated, split and lost, time passes, the service restarts."""

    def __init__(self) -> None:
        super().__init__()
        limits = EngineSettings(retained_steps=4)
        self.service, self.twin = Service(limits), Service(limits)
        self.ranks: list[Rank] = []
        self.at: dict[int, int] = {}
        self.flying: list[Observation] = []
        self.handed: list[Observation] = []
        self.offered = 0

    @initialize(world=st.integers(1, 4))
    def begin(self, world: int) -> None:
        self.ranks = [Rank(number, world_size=world) for number in range(world)]
        self.at = dict.fromkeys(range(world), 0)

    @rule(data=st.data(), value=integers)
    def record(self, data: st.DataObject, value: float) -> None:
        rank = data.draw(st.sampled_from(self.ranks))
        step = self.at[rank.writer.rank]
        self.flying += rank.record(step, {"a": value, "b": value + 1}, "mean")

    @rule(data=st.data(), ahead=st.integers(1, 2))
    def next_step(self, data: st.DataObject, ahead: int) -> None:
        rank = data.draw(st.sampled_from(self.ranks))
        self.flying += rank.done(self.at[rank.writer.rank])
        self.at[rank.writer.rank] += ahead

    @rule(data=st.data(), back=st.integers(1, 6), value=integers)
    def record_at_an_old_step(self, data: st.DataObject, back: int, value: float) -> None:
        rank = data.draw(st.sampled_from(self.ranks))
        step = max(0, self.at[rank.writer.rank] - back)
        self.flying += rank.record(step, {"a": value}) + rank.done(step)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), count=st.integers(1, 8))
    def arrive(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.flying))):
            self.hand(self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1))))
        self.settle()

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def arrive_again(self, data: st.DataObject) -> None:
        self.hand(data.draw(st.sampled_from(self.handed)))
        self.settle()

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))

    @precondition(lambda self: any(isinstance(o, Fragment) and len(o.partials.series) > 1 for o in self.flying))
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        whole = [o for o in self.flying if isinstance(o, Fragment) and len(o.partials.series) > 1]
        chosen = data.draw(st.sampled_from(whole))
        self.flying = [o for o in self.flying if o is not chosen] + split(chosen, 1)

    @rule(seconds=st.sampled_from([0.5, 3.0, 11.0, 70.0]), alive=st.booleans())
    def wait(self, seconds: float, alive: bool) -> None:
        heartbeats = [rank.inside(0, axis="heartbeat")[0] for rank in self.ranks] if alive else []
        for service in (self.service, self.twin):
            service.now += seconds
            for heartbeat in heartbeats:
                service.engine.observe(heartbeat, service.now)
        self.settle()

    @rule()
    def restart(self) -> None:
        before = account(self.service)
        self.service.restart()
        assert account(self.service) == before

    def hand(self, observation: Observation) -> None:
        self.handed.append(observation)
        self.offered += len(observation.partials.series) if isinstance(observation, Fragment) else 0
        for service in (self.service, self.twin):
            service.engine.observe(observation, service.now)

    def settle(self) -> None:
        self.service.settle()
        self.twin.settle()

    @invariant()
    def restarting_changes_nothing(self) -> None:
        assert list(map(repr, self.service.records)) == list(map(repr, self.twin.records))
        assert self.service.notices == self.twin.notices

    @invariant()
    def every_point_is_accounted_for(self) -> None:
        counts = self.service.engine.status.counts
        assert counts.received == self.offered
        parts = counts.open + counts.closed + counts.waiting + counts.duplicate + counts.superseded + counts.too_late
        assert parts + counts.ignored == counts.received

    @invariant()
    def steps_close_once_and_in_order(self) -> None:
        closed = [record.step for record in self.service.steps() if not record.amendment]
        assert closed == sorted(set(closed))

    @invariant()
    def numbers_ascend_without_gaps(self) -> None:
        assert [record.seq for record in self.service.records] == list(range(1, len(self.service.records) + 1))

    def teardown(self) -> None:
        """In the end everything that arrived is in the rows, exactly, but for what was too late."""
        self.service.take(*[rank.bye() for rank in self.ranks])
        self.service.now += 400
        self.service.settle()
        counts = self.service.engine.status.counts
        assert counts.open == counts.waiting == 0
        self.restart()
        assert self.service.engine.status.left == {rank.writer.instance for rank in self.ranks}
        if not counts.too_late:
            assert self.service.rows() == self.expected()

    def expected(self) -> dict[int, dict[str, float]]:
        values: dict[int, dict[str, list[float]]] = {}
        seen: set[tuple[object, ...]] = set()
        for observation in self.handed:
            if isinstance(observation, Fragment) and observation.step is not None:
                for key, stats in zip(observation.partials.series, observation.partials.stats, strict=True):
                    identity = (observation.writer.rank, observation.seq, key)
                    if identity not in seen:
                        seen.add(identity)
                        values.setdefault(observation.step, {}).setdefault(key.name, []).append(float(stats[1]))
        return {
            step: {name: math.fsum(found) / len(found) for name, found in names.items()}
            for step, names in values.items()
        }


EngineMachine.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestEngineMachine = EngineMachine.TestCase
