"""Lives of a job: what the tests of attempts are written with."""

from __future__ import annotations

from tests.strategies import START, Rank, Service


def life(name: str, world: int = 2, start: float = START, **facts: object) -> list[Rank]:
    """Return the ranks of one life of a job; with `boot` they know when the machine was started: at the epoch."""
    if "boot" in facts:
        facts["born"] = start
    return [Rank(rank, world_size=world, instance=f"{name}-{rank}", clock=start, **facts) for rank in range(world)]


def live_on(service: Service, ranks: list[Rank], first: int) -> None:
    """Let ranks record three steps, and live for some seconds more."""
    for step in range(first, first + 3):
        service.now += 0.1
        for rank in ranks:
            rank.clock = service.now
        service.take(*[rank.step(step, {"x": 2.0}, "sum") for rank in ranks])
    for _ in range(4):
        service.now += 1.0
        service.take(*[rank.inside(first + 2) for rank in ranks])
