"""Whatever ranks say they took, wherever they say they are: nothing raises, and nothing takes long."""

from __future__ import annotations

import math
import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers

PHASES = ("data", "forward", "recv", "checkpoint", "step", "untimed")

seconds = st.sampled_from([0.0, 0.001, 1.0, 1.01, 5.0, 1e9, 1e308, -1.0, math.nan, math.inf, -math.inf])


@st.composite
def steps(draw: st.DrawFn) -> list[StepTimers]:
    phases = tuple(draw(st.lists(st.sampled_from(PHASES), unique=True, min_size=1)))
    found = []
    for _ in range(draw(st.integers(1, 40))):
        ranks = tuple(draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=6)))
        row = st.lists(seconds, min_size=len(phases), max_size=len(phases))
        table = np.array([draw(row) for _ in ranks]).reshape(len(ranks), len(phases))
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
