"""What a service knows of a run outlives it: everything that a job can do to it, and a new start after each commit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from otel_ml_exporters.json_text import plain_json
from otel_ml_exporters.records import Span
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.observation import Observation, Spans
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Rank, Service, cumulative, writer

RANKS, STEPS = 4, 12
REDUCTIONS = ("mean", "sum", "max", "sum>max,mean", "rank", "p50", "last", "geomean")
TIGHT = EngineSettings(retained_steps=3, params=6, summaries=3, axes=4, writers=11, identities=200, top_ranks=2)
"""Of series a new service learns anew which come first (`series_budget.py`): their limits are not reached."""


class Job:
    """What one job sends in three lives: the second begins again at an older step, the third without a rank."""

    def __init__(self, seed: int, *, counted: bool) -> None:
        self.random = Random(seed)
        self.counted = counted
        self.engine = writer(0, role="inference", instance="vllm")
        self.scraped = 0.0

    def batches(self) -> Iterator[list[Observation]]:
        """Yield what arrives together."""
        for life, (first, ranks) in enumerate([(0, RANKS), (STEPS // 2, RANKS), (STEPS, RANKS - 1)]):
            attempt = {"attempt": life} if self.counted else {}
            members = [
                Rank(number, instance=f"trainer-{number}-{life}", clock=START + 100 * life, world_size=ranks, **attempt)
                for number in range(ranks)
            ]
            yield from self._life(members, range(first, first + STEPS))
            said = self.random.choice([["finished"] * ranks, ["failed", *["killed"] * (ranks - 1)]])
            yield [
                message
                for rank, status in zip(members, said, strict=True)
                for message in rank.bye(status, dropped={"full": 2})
            ]

    def _life(self, members: list[Rank], steps: range) -> Iterator[list[Observation]]:
        yield [
            sent
            for rank in members
            for sent in rank.event("ml.params", {"lr": self.random.random(), "seed": rank.writer.rank})
        ]
        late: list[Observation] = []
        for step in steps:
            batch, late = late, []
            for rank in members:
                rank.clock += 1.0
                sent = self._step(rank, step)
                late += [one for one in sent if self.random.random() < 0.1]
                batch += [one for one in sent if one not in late]
            yield self.random.sample(batch, len(batch))
            yield self._beside(members, step)

    def _step(self, rank: Rank, step: int) -> list[Observation]:
        sent = []
        for number, reduction in enumerate(self.random.sample(REDUCTIONS, 3)):
            values = [
                self.random.choice([1.0, 2.5, float("nan"), -3.0, 0.25]) for _ in range(self.random.randint(1, 3))
            ]
            sent += rank.record(step, {f"m{number}": values, "lr": [0.5]}, reduction)
        sent += rank.record(step, {"time/forward": [self.random.random()]}, "max,mean")
        sent += rank.record(None, {"free": [1.0]}) if self.random.random() < 0.3 else []
        return [*sent, *rank.done(step), *rank.says_totals(step)]

    def _beside(self, members: list[Rank], step: int) -> list[Observation]:
        rank = self.random.choice(members)
        self.scraped += self.random.randint(0, 3)
        now = rank.clock
        span = Span(
            "a" * 32,
            f"{step:016x}",
            None,
            "forward",
            round(now * 1e9),
            round(now * 1e9) + 10,
            "trainer",
            rank.writer.rank,
            "step",
            step,
        )
        return [
            *rank.event("ml.text", f"sample {step}", step, name="sample"),
            *rank.event("ml.summary", {f"best{self.random.randint(0, 4)}": self.random.random()}),
            *rank.event("ml.params", {f"p{step}": step}),
            *rank.event("ml.notice", f"notice {step % 3}"),
            Spans(rank.writer, (span,)),
            cumulative(self.engine, "requests", self.scraped, start=START, time=now),
            cumulative(
                self.engine,
                f"queue{step % 5}",
                self.scraped,
                start=START,
                time=now,
                kind="gauge",
                temporality="none",
                monotonic=None,
            ),
        ]


def served(seed: int, *, counted: bool, restarts: bool) -> Service:
    service = Service(TIGHT)
    for batch in Job(seed, counted=counted).batches():
        service.take(batch)
        service.wait(1.0)
        if restarts:
            service.restart()
    service.wait(30.0)
    return service


@pytest.mark.parametrize("counted", [True, False], ids=["the launcher counts", "nobody counts"])
@pytest.mark.parametrize("seed", range(4))
def test_a_service_that_starts_again_after_each_commit_knows_all_that_one_knows_that_never_ended(
    seed: int, counted: bool
) -> None:
    through, restarted = (served(seed, counted=counted, restarts=restarts) for restarts in (False, True))

    assert list(map(repr, restarted.records)) == list(map(repr, through.records))
    assert restarted.notices == through.notices
    assert restarted.state == through.state
    assert restarted.engine.facts == through.engine.facts
    assert restarted.engine.findings == through.engine.findings
    assert restarted.engine.status == through.engine.status


def test_a_service_that_starts_again_and_hears_nothing_writes_nothing() -> None:
    service = served(0, counted=True, restarts=False)

    service.restart()

    assert changes_of(service) == {}


def test_what_another_version_wrote_is_written_again_in_the_form_of_this_one() -> None:
    service = served(0, counted=True, restarts=False)
    service.wait(400.0)  # it ends, and tells what it lost: of such a run that is counted again
    run = json.loads(service.state["run"])
    assert "dropped/full" in run.pop("told")
    blocks = [service.state[key] for key in sorted(service.state) if key.startswith("training/")]
    clock = [run["training"], [step for block in blocks for step in json.loads(block)]]
    rest = {key: without_starters(key, data) for key, data in service.state.items() if not key.startswith("training/")}
    of_version_10 = {**rest, "run": plain_json({**run, "version": 10, "training": clock})}

    older = Engine("exp", service.settings, of_version_10)

    assert {**of_version_10, **older.take().changes} == service.state


def without_starters(key: str, data: bytes) -> bytes:
    """Return an entry as it was before writers said who had started them, and could owe no shutdown message."""
    if key.startswith("who/"):
        return plain_json(json.loads(data)[:-1])
    if key.startswith("writer/"):
        entry = json.loads(data)
        entry[5].pop()
        return plain_json(entry)
    return data


def changes_of(service: Service) -> Mapping[str, bytes | None]:
    service.engine.advance(service.now)
    return service.engine.take().changes


def test_that_somebody_went_on_from_a_step_without_a_word_about_it_outlives_the_service() -> None:
    service = Service()
    here, there = (Rank(number, world_size=2) for number in range(2))
    service.take(here.record(0, {"loss": [1.0]}), there.record(0, {"loss": [3.0]}))
    service.take(here.step(1, {"loss": [1.0]}))  # its end of step 0 was lost
    service.wait(service.settings.allowed_lateness_s - 1.0, here, there)

    service.restart()

    service.wait(2.0, here, there)
    assert [notice for notice in service.notices if "still open" in notice]
