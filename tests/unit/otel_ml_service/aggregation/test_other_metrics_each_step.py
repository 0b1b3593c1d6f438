"""A job that records another choice of its metrics in each step: what an engine has looked at, it forgets again."""

from __future__ import annotations

import gc
from random import Random
from types import CodeType, FunctionType, ModuleType

import numpy as np
import pytest

from otel_ml_service.aggregation import (
    interned_series,
    quota,
    rank_timers,
    recent_points,
    reductions,
    rows,
    third_party,
)
from otel_ml_service.aggregation.observation import Partials, SeriesKey, ThirdPartyPoints
from otel_ml_service.aggregation.points import single
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Rank, Service, writer

BOUND = 12
NAMES = [f"group{number}/loss" for number in range(12)]
TIMERS = [f"time/{number}" for number in range(12)]
AMOUNTS = [f"part{number}/num_tokens" for number in range(12)]
AT_ONCE = 5
SDK = writer(role="other")

CACHES = [
    (interned_series, "MAX_IDLE"), (quota, "MAX_SHAPES"), (rank_timers, "_MAX_SHAPES"), (recent_points, "_MOST"),
    (reductions, "MAX_PLANS"), (rows, "_MAX_SHAPES"), (third_party, "_MAX_SHAPES"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in CACHES:
        monkeypatch.setattr(module, name, BOUND)  # a bound that one test can reach


class Sdk:
    """Another SDK with a counter under each name; the receiver has one tuple for equal series."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, ...], tuple[SeriesKey, ...]] = {}

    def points(self, names: list[str], step: int | None, now: float, scope: str) -> ThirdPartyPoints:
        keys = self._keys.setdefault(tuple(names), tuple(SeriesKey(name, (), "moments") for name in names))
        partials = Partials(
            keys, np.concatenate([single(now - START)] * len(names)), np.array([[round(now * 1e9)] * 2] * len(names))
        )
        starts, axis = (round(START * 1e9),) * len(names), None if step is None else "step"
        points = ThirdPartyPoints(SDK, "sum", "delta", True, axis, step, None, starts, partials, scope)
        return points._replace(temporality="cumulative") if step is None else points


def job(steps: int, *, varies: bool) -> Service:
    """Return a service after so many steps of one rank, and of an SDK beside it."""
    service = Service(EngineSettings(retained_steps=2, closed_bytes=0, identities=20))
    rank, sdk, draw = Rank(0), Sdk(), Random(1)
    for step in range(steps):
        chosen = sorted(draw.sample(range(12), AT_ONCE)) if varies else list(range(AT_ONCE))
        names, timers, amounts = ([of[number] for number in chosen] for of in (NAMES, TIMERS, AMOUNTS))
        service.now += 4.0
        service.take(
            rank.record(step, dict.fromkeys(names, 1.0)),
            rank.record(step, dict.fromkeys(amounts, 7.0), "sum"),
            rank.record(step, dict.fromkeys(timers, 0.1), "sum>max"),
            rank.done(step),
            [sdk.points(names, None, service.now, "")],
            [sdk.points(names, step, service.now, f"scope {step if varies else 0}")],
        )
    return service


def sizes(root: object) -> list[int]:
    """Return how many entries each container has that an object holds on to, the largest first."""
    found, seen, waiting = [], {id(root)}, [root]
    while waiting:
        for one in gc.get_referents(waiting.pop()):
            if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType, CodeType)):
                continue
            seen.add(id(one))
            waiting.append(one)
            if isinstance(one, (dict, list, set)):
                found.append(len(one))
    return sorted(found, reverse=True)


def test_what_was_looked_at_of_ever_other_metrics_is_forgotten_beyond_a_bound() -> None:
    as_ever, other_each_step = (sizes(job(90, varies=varies).engine) for varies in (False, True))

    more = [size - usual for size, usual in zip(other_each_step, as_ever, strict=False)]
    assert max(more) <= 2 * BOUND  # a few names more are known


def test_what_was_forgotten_is_looked_at_again_and_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = job(60, varies=True)
    monkeypatch.undo()
    knowing = job(60, varies=True)

    assert forgetful.records == knowing.records
    assert forgetful.notices == knowing.notices
    assert forgetful.engine.status.counts == knowing.engine.status.counts
