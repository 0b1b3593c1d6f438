"""Whatever ranks say they took, wherever they say they are: nothing raises, and nothing takes long."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_exporters.records import StepRecord
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers, only_times
from tests.quality.jobs import KINDS, job
from tests.strategies import Service
from tests.unit.otel_ml_service.findings.served_ranks import ranks_of

PHASES = ("data", "forward", "recv", "checkpoint", "step", "untimed")

seconds = st.sampled_from([0.0, 0.001, 1.0, 1.01, 5.0, 1e9, 1e308, -1.0, math.nan, math.inf, -math.inf])


@st.composite
def steps(draw: st.DrawFn) -> list[StepTimers]:
    phases = tuple(draw(st.lists(st.sampled_from(PHASES), unique=True, min_size=1)))
    found = []
    for _ in range(draw(st.integers(1, 40))):
        ranks = tuple(draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=6)))
        row = st.lists(seconds, min_size=len(phases), max_size=len(phases))
        table = only_times(np.array([draw(row) for _ in ranks]).reshape(len(ranks), len(phases)))
        hosts = tuple(draw(st.sampled_from(["", "n1", "n2"])) for _ in ranks)
        mesh = tuple(draw(st.sampled_from([{}, {"dp": 0}, {"dp": 1, "tp": 0}])) for _ in ranks)
        found.append(StepTimers(ranks, phases, table, hosts=hosts, topologies=mesh))
    return found


@settings(max_examples=30, deadline=None)
@given(steps())
def test_whatever_was_timed_nothing_raises(job: list[StepTimers]) -> None:
    step_findings = StepFindings()

    with np.errstate(all="ignore"):  # 1e308 and more
        for step, timers in enumerate(job):
            step_findings.step(step, timers, {"forward": "step"})
        after = StepFindings(tuple(step_findings))
        for step, timers in enumerate(job, len(job)):
            after.step(step, timers, {})

    assert all(finding.since <= finding.last for finding in after)


def disturbed(seed: int) -> Iterator[StepTimers]:
    """A job of `tests.quality` of which ranks fall silent, and leave, timers are missing, and times are none."""
    of, draw = job(seed), np.random.default_rng(seed)
    ranks, silent = len(next(of.seconds())), frozenset[int]()
    ended_ns = np.zeros(ranks, dtype=np.int64)
    left = int(draw.integers(ranks)) if ranks > 2 and seed % 2 else -1
    for step, table in enumerate(of.seconds()):
        if step % 10 == 0:
            silent = frozenset(draw.choice(ranks, int(draw.integers(0, ranks - 1)), replace=False).tolist())
        heard = [rank for rank in range(ranks) if rank not in silent and not (rank == left and step >= 30)]
        if draw.random() < 0.2:
            table[draw.integers(ranks), draw.integers(len(of.phases))] = draw.choice([math.nan, math.inf, -1.0, 0.0])
        stages, hosts, topologies = (
            tuple(of_all[rank] for rank in heard) if of_all else () for of_all in (of.stages, of.hosts, of.topologies)
        )
        seconds = only_times(table[heard])
        ended_ns += np.nan_to_num(only_times(table).sum(axis=1) * 1e9).astype(np.int64)
        yield StepTimers(
            tuple(heard), of.phases, seconds, silent, stages=stages, hosts=hosts, topologies=topologies,
            processes=tuple(f"p{rank}" for rank in heard), ended_ns=tuple(ended_ns[heard].tolist()),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_whoever_is_slow_and_whoever_is_missing_what_it_costs_is_a_number(seed: int) -> None:
    step_findings = StepFindings()

    for step, timers in enumerate(disturbed(seed)):
        step_findings.step(step, timers, {})

        costs = [(one.slowdown, one.extra_s, one.cost_s, one.saved_s) for one in step_findings]
        assert all(0 <= value < math.inf for value in [step_findings.cost_s, *(cost for row in costs for cost in row)])
        assert all(0 <= phase.seconds < math.inf for phase in step_findings.account)


@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan, 1e300, -1.0])
def test_a_timer_that_says_what_is_no_time_is_in_no_account_and_no_finding(broken: float) -> None:
    service, ranks = Service(), ranks_of(4)
    for step in range(40):
        for rank in ranks:
            is_broken = rank.writer.rank == 2 and step % 8 == 5
            forward = broken if is_broken else 1.5 if rank.writer.rank == 1 and step >= 20 else 1.0
            service.take(rank.step(step, {"time/forward": forward, "time/backward": 2.0}, "sum>max"))
        service.wait(1, *ranks)

    [finding] = service.engine.findings
    assert (finding["rank"], finding["phase"], finding["since"]) == (1, "forward", 20)
    assert finding["extra_s"] == pytest.approx(0.5)
    accounts = [row.values["time/exposed/forward"] for row in service.records if isinstance(row, StepRecord)]
    assert accounts == pytest.approx([1.0] * 20 + [1.5] * 20)


def test_a_topology_of_many_dimensions_of_four_thousand_ranks_is_looked_at_within_bounds() -> None:
    count, step_findings, draw = 4096, StepFindings(), np.random.default_rng(0)
    mesh = tuple({f"d{dimension}": rank % (dimension + 2) for dimension in range(40)} for rank in range(count))
    hosts = tuple(f"n{rank // 8}" for rank in range(count))
    slow = draw.permutation(count)[:100]
    begun = time.process_time()

    for step in range(12):
        table = np.column_stack((draw.lognormal(0.0, 0.01, count), np.full(count, 2.0)))
        table[slow, 0] *= 1.5
        timers = StepTimers(tuple(range(count)), ("forward", "backward"), table, hosts=hosts, topologies=mesh)
        step_findings.step(step, timers, {})

    assert len(list(step_findings)) == 100
    assert time.process_time() - begun < 30  # all 2^40 combinations would take years
