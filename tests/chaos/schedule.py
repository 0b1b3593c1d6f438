"""Which fault happens when: decided before the round, by its seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.layout import RANKS, Layout

WARM_UP_S = 6.0
"""Before the first fault: every rank has begun to record."""

SPACE_S = {"trainer": 3.0, "generator": 1.5, "service": 2.5, "collector": 2.0, "mlflow": 2.0}
"""Between two faults of one target: what was started has run before it dies again."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: in the table.
        target: what it is done to; a target has one fault at a time. `worker` is any rank.
        seconds: how long it may last; a longer one is as likely as a shorter one.
        at_most: how often in a round.
        applies: in which layouts.
    """

    name: str
    target: str
    seconds: Sequence[float]
    at_most: int = 1000
    applies: Callable[[Layout], bool] = lambda layout: True


@dataclass(frozen=True)
class Fault:
    """One fault: `at` seconds after the round's begin, for `seconds`; `draw` decides what else is by chance."""

    at: float
    kind: str
    target: str
    seconds: float
    draw: int


STOPS = (0.3, 1.0, 4.0)
NETWORK = ("cut", "delay", "truncate", "repeat", "reorder", "refuse")
BACKEND = ("raises", "hangs", "is slow", "starts anew")

KINDS: Sequence[Kind] = (
    Kind("kill -9 of a trainer, all restart", "trainer", (0.0, 0.3, 1.0)),
    # Without a launcher's counter an attempt of which nothing was heard while it lived is merged into the one before
    # it, and a process of an old attempt that lives on is a twin (ADR 0011).
    Kind("kill -9 of a trainer, one rank fewer restarts", "trainer", (0.0, 1.0), applies=lambda at: at.counted),
    Kind("a trainer hangs, all restart, it wakes up", "trainer", (2.0, 5.0), applies=lambda at: at.counted),
    Kind("kill -9 of a generator", "generator", (0.0, 0.5, 1.0)),
    Kind("SIGTERM twice of a generator", "generator", (0.0, 1.0)),
    Kind("kill -9 of a generator for good", "generator", (0.0,), at_most=1),
    Kind("SIGSTOP of a worker", "worker", STOPS),
    Kind("SIGSTOP of a worker for 30 s", "worker", (30.0,), at_most=1),
    Kind("clock of a worker ± 1 h", "worker", (0.0,)),
    Kind("kill -9 of the service", "service", (0.0, 1.0, 3.0)),
    Kind("a former version of the service", "service", (2.0, 4.0), at_most=2, applies=lambda at: at.served),
    Kind("SIGSTOP of the service", "service", STOPS),
    Kind("SIGSTOP of the service for 30 s", "service", (30.0,), at_most=1),
    *(Kind(f"backend {how}", "backend", (1.0, 3.0, 6.0)) for how in BACKEND),
    Kind("a deleted file of a backend", "backend", (0.0,)),
    Kind("disk of the service full", "service's disk", (1.0, 2.0, 4.0)),
    Kind("disk of the spools full", "spools' disk", (0.5, 1.0, 2.0)),
    *(Kind(f"network: {how}", "network", (0.5, 1.0, 3.0), applies=lambda at: at.served) for how in NETWORK),
    Kind("network: swallow", "network", (1.0, 3.0), applies=lambda at: at.served and at.protocol != "grpc"),
    Kind("kill -9 of the Collector", "collector", (0.0, 1.0, 3.0), applies=lambda at: at.through_collector),
    Kind("SIGSTOP of the Collector", "collector", STOPS, applies=lambda at: at.through_collector),
    *(
        Kind(f"behind the Collector: {how}", "hop", (0.5, 1.0, 3.0), applies=lambda at: at.through_collector)
        for how in NETWORK
        if how != "refuse"
    ),
    Kind("kill -9 of the MLflow server", "mlflow", (0.0, 2.0), at_most=3, applies=lambda at: at.mlflow_server),
    *(
        Kind(f"MLflow's network: {how}", "mlflow", (0.5, 2.0, 4.0), applies=lambda at: at.mlflow_server)
        for how in ("cut", "delay", "refuse")
    ),
)


def schedule(seed: int, layout: Layout, faults: int, seconds: float, *, disks: bool = True) -> list[Fault]:
    """Return `faults` faults within about `seconds`, in order; each kind comes before any comes twice.

    Args:
        seed: the same one gives the same faults.
        layout: what can be disturbed.
        faults: how many.
        seconds: how long the round is disturbed.
        disks: whether a disk can be made small here.
    """
    chance = random.Random(seed)
    known = [kind for kind in KINDS if kind.applies(layout) and (disks or not kind.target.endswith("disk"))]
    chosen = chance.sample(known, min(faults, len(known)))
    while len(chosen) < faults:
        chosen.append(chance.choice([kind for kind in known if chosen.count(kind) < kind.at_most]))
    chance.shuffle(chosen)
    # What lasts begins early: nothing is cut short by the round's end.
    chosen.sort(key=lambda kind: max(kind.seconds) < 20)
    spread = [WARM_UP_S + (seconds - WARM_UP_S) * number / faults for number in range(faults)]
    free_at: dict[str, float] = {}
    found = []
    for kind, about in zip(chosen, spread, strict=True):
        target = kind.target if kind.target != "worker" else chance.choice(sorted(RANKS))
        lasts = chance.choice(list(kind.seconds))
        at = max(about + chance.uniform(0.0, seconds / faults), free_at.get(target, 0.0))
        free_at[target] = at + lasts + SPACE_S.get(target, 0.5)
        found.append(Fault(round(at, 3), kind.name, target, lasts, chance.getrandbits(32)))
    return sorted(found, key=lambda fault: fault.at)
