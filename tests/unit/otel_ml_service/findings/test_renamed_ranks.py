"""Who is found depends neither on the numbers that ranks have, nor on the unit in which time is measured."""

from __future__ import annotations

import numpy as np
import pytest

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.quality.jobs import KINDS, job
from tests.quality.truths import Job

pytestmark = pytest.mark.full


@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_ranks_with_other_numbers_are_found_as_before(seed: int) -> None:
    playing = job(seed)
    order = np.random.default_rng(seed).permutation(_ranks_of(playing))

    assert _found(playing, order) == _found(playing, np.arange(len(order)))


@pytest.mark.parametrize("times", [0.5, 3.0])
@pytest.mark.parametrize("seed", range(len(KINDS)))
def test_a_job_whose_steps_are_all_longer_has_the_same_findings(seed: int, times: float) -> None:
    playing = job(seed)
    order = np.arange(_ranks_of(playing))

    assert _found(playing, order, times) == _found(playing, order)


def _ranks_of(playing: Job) -> int:
    return len(next(iter(playing.seconds())))


def _found(playing: Job, order: np.ndarray, times: float = 1.0) -> set[tuple[object, ...]]:
    """Return what is found where rank `i` does what rank `order[i]` does in the job, by the job's own numbers."""
    findings, ended = StepFindings(), list[Finding]()
    ranks = tuple(range(len(order)))
    stages, hosts, topologies = (
        tuple(of_ranks[rank] for rank in order) if of_ranks else ()
        for of_ranks in (playing.stages, playing.hosts, playing.topologies)
    )
    for step, seconds in enumerate(playing.seconds()):
        timers = StepTimers(
            ranks, playing.phases, seconds[order] * times, stages=stages, hosts=hosts, topologies=topologies
        )
        ended += [one for one in findings.step(step, timers, {}) if one.is_over]
    return {
        (
            one.kind, None if one.rank is None else order[one.rank], one.phase, one.since, one.last, one.stage,
            one.where, frozenset(order[list(one.ranks)]),
        )
        for one in [*ended, *findings]
    }  # fmt: skip
