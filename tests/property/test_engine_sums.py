"""After anything that may happen to an engine, what it keeps count of is what a recount from scratch comes to."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from otel_ml_service.aggregation.observation import Fragment, Observation
from otel_ml_service.aggregation.settings import EngineSettings
from tests.recount import kept_sums, recounted, unaccounted
from tests.strategies import Rank, Service, cumulative, split, writer

BOUNDS = st.builds(
    EngineSettings,
    open_bytes=st.sampled_from([2_000, 6_000, 1 << 30]),
    retained_bytes=st.sampled_from([0, 3_000, 256 << 20]),
    retained_steps=st.sampled_from([1, 4, 512]),
    closed_bytes=st.sampled_from([0, 1 << 20]),
)
"""Of each bound one that nearly everything meets, and one that nothing does."""


class SumsMachine(RuleBasedStateMachine):
    """Ranks record with a step and without, die and come back, are late and split; other SDKs send beside them."""

    @initialize(world=st.integers(1, 3), bounds=BOUNDS)
    def begin(self, world: int, bounds: EngineSettings) -> None:
        self.service = Service(bounds)
        self.ranks = [Rank(number, world_size=world, boot="b", instance=f"{number}-0") for number in range(world)]
        self.born, self.came_back = 0, False
        self.flying: list[Observation] = []
        self.handed: list[Fragment] = []

    def one(self, data: st.DataObject) -> Rank:
        rank = data.draw(st.sampled_from(self.ranks))
        rank.clock = self.service.now
        return rank

    @rule(data=st.data(), step=st.integers(0, 8), names=st.sampled_from(["a", "ab", "bcd"]), leaves=st.booleans())
    def record(self, data: st.DataObject, step: int, names: str, leaves: bool) -> None:
        rank = self.one(data)
        self.flying += rank.record(step, dict.fromkeys(names, 1.0), "sum")
        self.flying += rank.done(step) if leaves else []

    @rule(step=st.integers(0, 8))
    def a_step_of_all(self, step: int) -> None:
        for rank in self.ranks:
            rank.clock = self.service.now
            self.service.take(self.handing(rank.step(step, {"a": 1.0}, "sum")))

    @rule(data=st.data(), role=st.sampled_from(["trainer", "evaluator"]))
    def record_without_a_step(self, data: st.DataObject, role: str) -> None:
        rank = self.one(data) if role == "trainer" else Rank(9, role=role, instance=f"e{self.born}")
        rank.clock = self.service.now
        self.born += 1
        self.flying += rank.record(None, {"memory": 1.0}, "last")

    @rule(step=st.integers(0, 8), names=st.sampled_from(["x", "xy"]))
    def another_sdk_sends(self, step: int, names: str) -> None:
        self.born += 1
        for name in names:
            point = cumulative(
                writer(8, role="vllm", boot="b"),
                name,
                self.born,
                start=self.service.now,
                time=self.service.now,
                step=step,
            )
            self.service.take([point])

    @rule(data=st.data(), inside=st.integers(0, 8))
    def beat(self, data: st.DataObject, inside: int) -> None:
        self.service.take(self.one(data).inside(inside))

    @rule(data=st.data(), all_of_them=st.booleans())
    def come_back(self, data: st.DataObject, all_of_them: bool) -> None:
        self.came_back = True
        chosen = self.ranks if all_of_them else [self.one(data)]
        for rank in list(chosen):
            self.born += 1
            old, now = rank.writer, self.service.now
            facts = {"world_size": old.world_size, "boot": "b", "born": now}
            self.ranks[old.rank] = Rank(old.rank, instance=f"{old.rank}-{self.born}", clock=now, **facts)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), count=st.integers(1, 8), splits=st.booleans())
    def arrive(self, data: st.DataObject, count: int, splits: bool) -> None:
        for _ in range(min(count, len(self.flying))):
            found = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
            whole = [found] if not (splits and isinstance(found, Fragment)) else split(found, 1)
            self.service.take(self.handing(whole))

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def arrive_again(self, data: st.DataObject) -> None:
        self.service.take([data.draw(st.sampled_from(self.handed))])

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0, 70.0]), alive=st.booleans())
    def wait(self, seconds: float, alive: bool) -> None:
        self.service.now += seconds
        for rank in self.ranks if alive else []:
            rank.clock = self.service.now
            self.service.engine.observe(rank.inside(0, axis="heartbeat")[0], self.service.now)
        self.service.settle()

    @rule(data=st.data())
    def say_goodbye(self, data: st.DataObject) -> None:
        self.flying += self.one(data).bye()

    @rule()
    def restart(self) -> None:
        self.service.restart()

    def handing(self, observations: list[Observation]) -> list[Observation]:
        self.handed += [one for one in observations if isinstance(one, Fragment)]
        return observations

    @invariant()
    def what_is_kept_is_what_a_recount_comes_to(self) -> None:
        assert kept_sums(self.service.engine) == recounted(self.service.engine)

    @invariant()
    def every_point_is_accounted_for(self) -> None:
        """Where ranks came back, what a row had counted may be carried into another attempt, and counts there again."""
        missing = unaccounted(self.service.engine)
        assert missing <= 0 if self.came_back else missing == 0

    @invariant()
    def what_is_open_stays_within_its_bound(self) -> None:
        status = self.service.engine.status
        assert status.open_bytes <= self.service.settings.open_bytes

    @invariant()
    def each_writer_is_credited_with_what_arrived_of_it(self) -> None:
        expected: dict[str, set[object]] = {}
        for fragment in self.handed:
            rows = {(fragment.seq, key) for key in fragment.partials.series}
            expected.setdefault(fragment.writer.instance, set()).update(rows)
        arrived = {w.writer.instance: w.ledger.arrived.points for w in self.service.engine._run.writers if w.native}
        assert {name: count for name, count in arrived.items() if count} == {n: len(s) for n, s in expected.items()}

    def teardown(self) -> None:
        """After the end nothing is open, and nothing waits."""
        self.service.take(*[rank.bye() for rank in self.ranks])
        self.service.now += 400
        self.service.settle()
        counts = self.service.engine.status.counts
        assert (counts.open, counts.waiting, self.service.engine.status.open_bytes) == (0, 0, 0)


SumsMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSums = SumsMachine.TestCase
