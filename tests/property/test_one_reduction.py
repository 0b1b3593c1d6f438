"""Whoever says how a metric is reduced, and when: the run is the one in which every call says it (ADR 0036)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_ml import define_metric, log, set_step, timer
from otel_ml._internal.lifecycle.isolation import forget_everything
from otel_ml._internal.messages.encode_metrics import scope_fields
from otel_ml._internal.messages.recorder import recorder
from otel_ml.wire.protobuf import field, key_values
from otel_ml_service.aggregation.observation import Fragment, Observation
from otel_ml_service.receiver.decode import Decoder
from tests.strategies import Service

REDUCTIONS = (
    *("mean", "sum", "min", "max", "count", "std", "last", "first", "p50", "p90", "rank", "argmax", "argmin"),
    *("mean,last", "first,last", "p50,last,std", "sum>max", "last>sum", "std>max", "max>p90", "count>min"),
)

SUMS = ("mean", "sum", "min", "max", "count", "sum>max")
"""Reductions that can be made of what a process keeps for any of them."""

GLOB = ("sum", "max")

Call = tuple[str, float]
"""What a rank does: `bare` and `said` record a value; `define`, `glob`, `name` and `tick` do not."""

Program = Sequence[Sequence[Call]]
"""Of a rank: its calls at each step."""

calls = st.tuples(
    st.sampled_from(["bare", "bare", "bare", "said", "define", "tick", "tick"]), st.integers(-50, 50).map(float)
)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def jobs(draw: st.DrawFn) -> list[Program]:
    """Draw what each rank does; somebody says the reduction before the first step is over."""
    steps = draw(st.integers(1, 3))
    step = st.lists(calls, min_size=1, max_size=14)
    job = [draw(st.lists(step, min_size=steps, max_size=steps)) for _ in range(draw(st.integers(1, 3)))]
    for rank in job:
        for number, made in enumerate(rank):
            rank[number] = [("bare", 1.0), *made]
    who = draw(st.sampled_from(job))
    who[0].insert(draw(st.integers(0, len(who[0]))), (draw(st.sampled_from(["said", "define"])), 7.0))
    return job


def options(reduction: str) -> dict[str, object]:
    within, arrow, across = reduction.rpartition(">")
    return {"reduce": tuple(across.split(",")), "within": within if arrow else None}


def collected(rank: int, world: int, *, final: bool = False) -> bytes:
    """Return what was recorded since the last time, as the request that a worker sends."""
    batch = recorder.collect(time.time_ns(), final=final)
    who = {"ml.experiment.id": "exp", "service.name": "trainer", "service.instance.id": f"trainer-{rank}"}
    resource = field(1, key_values(1, {**who, "ml.rank": rank, "ml.world_size": world}))
    return field(1, resource + scope_fields(batch.scope_metrics))


def requests(rank: int, world: int, program: Program, reduction: str, *, says_all: bool) -> Iterator[bytes]:
    """Yield what one rank sends."""
    forget_everything()
    recorder.enabled = True
    for number, made in enumerate(program):
        set_step(number)
        for kind, value in made:
            if kind == "tick":
                yield collected(rank, world)
            elif kind == "define":
                define_metric("m*", **options(reduction))
            elif kind == "glob":
                define_metric("*", **options(GLOB[int(value)]))
            elif kind == "name":
                define_metric("m", **options(reduction))
            elif kind == "said" or says_all:
                log({"m": value}, **options(reduction))
            else:
                log({"m": value})
    yield collected(rank, world, final=True)
    forget_everything()


def observations(decoder: Decoder, request: bytes) -> list[Observation]:
    return decoder.protobuf("metrics", request).observations.get("exp", [])


def rows(sent: Sequence[Sequence[bytes]], order: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return what a service makes of the ranks' requests; `order` says whose is next."""
    service, decoder = Service(), Decoder()
    waiting = [list(of_rank) for of_rank in sent]
    for number in [*order, *(number for number, of_rank in enumerate(sent) for _ in of_rank)]:
        if waiting[number % len(sent)]:
            service.take(observations(decoder, waiting[number % len(sent)].pop(0)))
    service.wait(15)
    assert not [notice for notice in service.notices if "reduc" in notice]
    return service.rows()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(job=jobs(), order=st.lists(st.integers(0, 2), max_size=40))
@SLOW
def test_any_order_of_ranks_ticks_and_definitions_gives_what_each_call_would_have_said(
    reduction: str, job: list[Program], order: list[int]
) -> None:
    world = len(job)
    sent = [list(requests(rank, world, made, reduction, says_all=False)) for rank, made in enumerate(job)]
    known = [list(requests(rank, world, made, reduction, says_all=True)) for rank, made in enumerate(job)]

    found, oracle = rows(sent, order), rows(known, [])

    assert found.keys() == oracle.keys()
    for step, values in oracle.items():
        assert found[step] == pytest.approx(values, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("glob", [0, 1])
@pytest.mark.parametrize("reduction", SUMS)
@given(job=jobs(), who=st.integers(0, 2), where=st.integers(0, 5), order=st.lists(st.integers(0, 2), max_size=40))
@SLOW
def test_what_is_said_of_a_metric_by_its_name_counts_whatever_a_glob_says_and_when(
    glob: int, reduction: str, job: list[Program], who: int, where: int, order: list[int]
) -> None:
    world = len(job)
    named = [[[("name" if kind == "define" else kind, value) for kind, value in step] for step in rank] for rank in job]
    oracle = rows([list(requests(rank, world, made, reduction, says_all=True)) for rank, made in enumerate(named)], [])
    named[who % world][0].insert(where, ("glob", float(glob)))
    sent = [list(requests(rank, world, made, reduction, says_all=False)) for rank, made in enumerate(named)]

    found = rows(sent, order)

    for step, values in oracle.items():
        assert found[step] == pytest.approx(values, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("first", [0, 1])
def test_a_timer_of_which_one_rank_says_how_it_is_reduced_is_so_for_all(first: int) -> None:
    sent = []
    for rank in range(2):
        forget_everything()
        recorder.enabled = True
        set_step(0)
        for _ in range(3):
            measured = timer("x", reduce="min") if rank == first else timer("x")
            measured.start()
            measured.stop()
        sent.append([collected(rank, 2, final=True)])
    forget_everything()

    (row,) = rows(sent, [1, 0]).values()
    totals = [
        sum(one.partials.stats[:, 1].sum() for one in observations(Decoder(), of_rank[0]) if isinstance(one, Fragment))
        for of_rank in sent
    ]

    assert row == {"time/x": pytest.approx(min(totals))}
