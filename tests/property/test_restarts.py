"""A job that dies and is started again, faster than its service can follow: each step is what the last life made of it.

Nobody counts the restarts. Ranks die apart, clocks are an hour wrong, the service is away for as long as whole lives
last, and finds what the dead left behind in any order.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import pytest

from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Rank, Service

WORLD = 3
LIVES = 6
PAUSE_S = 0.1
FLUSH_S = 0.2
START_S = 0.3
"""From the import to the first step; a process has begun when it was imported."""

KNOWN = {1: (3, 9, 26, 119, 205), 3: (3, 16, 120, 165, 252)}
"""Hosts → seeds that went wrong once: values counted in a life that was over, or an engine that ended in an error."""


def seeds(hosts: int) -> list[object]:
    found: list[object] = [pytest.param(hosts, seed) for seed in KNOWN[hosts]]
    return found + [
        pytest.param(hosts, seed, marks=pytest.mark.chaos) for seed in range(300) if seed not in KNOWN[hosts]
    ]


@dataclass(frozen=True, order=True)
class Request:
    """What arrives at once."""

    at: float
    number: int
    observations: list[Observation]


class Job:
    """Everything its ranks send, and when it arrives; times are in seconds since the start.

    Args:
        ends_well: in each life one rank is killed and all others end well. The service is always there then: of a life
            of which only those that ended well were heard, nothing tells that it is done again.

    Attributes:
        reached: the last step that every rank of the last life has recorded.
    """

    def __init__(self, seed: int, hosts: int, *, ends_well: bool = False) -> None:
        self._chance = random.Random(seed)
        self._hosts = hosts
        self._ends_well = ends_well
        self._away = [] if ends_well else self._outages()
        self._requests: list[Request] = []
        self.reached = -1
        began = 0.0
        for number in range(LIVES):
            began = self._live("abcdef"[number], began, is_last=number == LIVES - 1)
        self._end = began

    def _outages(self) -> list[tuple[float, float]]:
        found, at = [], 3.0
        for _ in range(3):
            at += self._chance.uniform(0.5, 6.0)
            lasts = self._chance.choice([1.0, 4.0, 10.0, 20.0])
            found.append((at, at + lasts))
            at += lasts
        return found

    def _live(self, name: str, began: float, *, is_last: bool) -> float:
        """Let all ranks live once, from a checkpoint; return when they are started again."""
        chance = self._chance
        first = max(0, self.reached + 1 - chance.choice([0, 1, 5, 12]))
        killed = began + 1.0 + (8.0 if is_last else chance.choice([1.0, 2.0, 4.0, 8.0]))
        dies_first = chance.randrange(WORLD)
        reached = []
        for number in range(WORLD):
            born = began + 0.2 + chance.uniform(0.0, 0.5)
            rank = Rank(
                number,
                world_size=WORLD,
                instance=f"{name}-{number}",
                born=START + born,
                boot=f"host{number % self._hosts}",
            )
            earlier = chance.choice([0.0, 0.0, 1.0]) if number == dies_first and not is_last else 0.0
            ends_well = is_last or (self._ends_well and number != dies_first)
            reached.append(
                self._record(rank, first, born + START_S, killed - earlier, is_last=is_last, ends_well=ends_well)
            )
        self.reached = min(reached)
        return killed + chance.choice([0.0, 0.3, 1.0])

    def _record(self, rank: Rank, first: int, began: float, dies: float, *, is_last: bool, ends_well: bool) -> int:
        """Let a rank record until it dies, or ends well; return its last step."""
        step, at, beat, sent, filled = first, began, began, began + self._chance.uniform(0.0, FLUSH_S), []
        flushed: list[tuple[float, list[Observation]]] = []
        while at < dies:
            rank.clock = START + at
            filled += rank.step(step, {"tokens": 4.0**rank.writer.rank}, "sum")
            if at >= beat:
                filled += rank.inside(step)
                beat = at + 1.0
            if at >= sent:
                flushed.append((at, filled))
                filled, sent = [], at + FLUSH_S
            step, at = step + 1, at + PAUSE_S
        flushed.append((at, filled + (rank.bye() if ends_well else [])))
        self._send(flushed, dies, is_last=is_last)
        return step - 1

    def _send(self, flushed: list[tuple[float, list[Observation]]], dies: float, *, is_last: bool) -> None:
        """Say when each request arrives: a sender's in order, what a dead one left in its spool when it is found."""
        newest, found = 0.0, {}
        for at, observations in flushed:
            back = self._back(at)
            if back > at and back not in found:
                lives = dies > back or is_last
                found[back] = back + (self._chance.uniform(0.05, 0.6) if lives else self._chance.uniform(0.1, 4.0))
            newest = max(self._back(max(found.get(back, at + 0.01), newest + 1e-6)), newest + 1e-6)
            self._requests.append(Request(newest, len(self._requests), observations))

    def _back(self, at: float) -> float:
        """Return when the service is there, from `at` on."""
        return next((back for away, back in self._away if away <= at < back), at)

    def served(self) -> Service:
        """Run it through a service that is killed, and started again from what it had committed."""
        service = Service(EngineSettings(allowed_lateness_s=2.0))
        requests = sorted(self._requests)
        ends = max(self._end, requests[-1].at, *(back for _, back in self._away)) + 5
        was_away, now = False, 0.0
        while now < ends:
            now += 0.1
            if self._back(now) > now:
                was_away = True
                continue
            if was_away:
                service.restart()
                was_away = False
            while requests and requests[0].at <= now:
                request = requests.pop(0)
                service.now = START + request.at
                service.take(request.observations)
            service.now = START + now
            service.take()
        service.wait(40)
        return service


@pytest.mark.parametrize(("hosts", "seed"), seeds(1) + seeds(3))
def test_each_step_has_every_rank_of_the_last_life_that_did_it_once(hosts: int, seed: int) -> None:
    job = Job(seed, hosts)

    rows = job.served().rows()

    every_rank_once = float(sum(4**number for number in range(WORLD)))
    assert {step: row["tokens"] for step, row in rows.items() if step <= job.reached} == dict.fromkeys(
        range(job.reached + 1), every_rank_once
    )


@pytest.mark.parametrize("hosts", [1, 3])
@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(6, 300))])
def test_a_step_that_is_done_again_has_no_value_of_a_rank_that_had_ended_well(hosts: int, seed: int) -> None:
    job = Job(seed, hosts, ends_well=True)

    rows = job.served().rows()

    every_rank_once = float(sum(4**number for number in range(WORLD)))
    assert {step: row["tokens"] for step, row in rows.items() if step <= job.reached} == dict.fromkeys(
        range(job.reached + 1), every_rank_once
    )


@pytest.mark.parametrize(("hosts", "rank"), [(1, 1), (3, 0)])
def test_the_beginning_of_an_attempt_is_said_with_a_reason_that_holds(hosts: int, rank: int) -> None:
    """The step that tells a life from the one before it may turn out to be of another life's."""
    said = [notice for notice in Job(197, hosts).served().notices if notice.startswith("Attempt ")]

    steps = [re.search(r"started again at step (\d+), and step (\d+) had been closed\.", notice) for notice in said]
    assert [int(found[1]) <= int(found[2]) for found in steps if found] == [True, True]
    [other] = [notice for notice, found in zip(said, steps, strict=True) if not found]
    assert other.startswith(
        f"Attempt 2 begins: rank {rank} of role 'trainer' was started again at step 77, "
        "and no rank of attempt 1 lived on."
    )
