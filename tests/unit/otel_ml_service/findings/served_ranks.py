"""Ranks of a job that a service hears."""

from __future__ import annotations

from tests.strategies import Rank, Service


def ranks_of(count: int) -> list[Rank]:
    return [Rank(rank, world_size=count) for rank in range(count)]


def steps(service: Service, ranks: list[Rank], numbers: range, *, slow: int | None = None, by: float = 1.0) -> None:
    for step in numbers:
        taken = [1.0 + (by if rank == slow else 0.0) for rank in range(len(ranks))]
        sent = [
            one.step(step, {"time/forward": seconds, "loss": 0.5}, "sum>max")
            for one, seconds in zip(ranks, taken, strict=True)
        ]
        service.take(*sent)
        service.wait(1, *ranks)
