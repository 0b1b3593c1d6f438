"""A host that is slow in several roles is told once, and only where it is the host."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_ml_exporters.records import RunStatus, StepRecord, Table
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import FINDINGS, finding, job, no_rank, numbered

SLOW = range(80, 120)
HOSTS = {"trainer": {0: "n1", 1: "n1", 2: "n2", 3: "n3"}, "generator": {0: "n2", 1: "n3", 2: "n4"}}


def said(hosts: Mapping[str, Mapping[int, str]], *, since: int = 160, until: int = 239, rank: int = 0) -> str:
    """Ask why steps 80-119 are slow: rank 2 of the trainer is, and a rank of generators, two rollouts a step."""
    rows = [row for row in job(slow=SLOW, extra_s=0.015, findings=[finding(since=80, until=119, extra_s=0.0149)])
            if not isinstance(row, RunStatus)]  # fmt: skip
    times = {row.step: row.time for row in rows if isinstance(row, StepRecord)}
    rows += [
        StepRecord(0, "generator", "rollout", rollout, 0, times[rollout // 2], {"generator/rollout/tokens": 1.0})
        for rollout in range(320)
    ]
    other = finding(rank=rank, phase="generate", since=since, until=until, extra_s=0.01)
    rows.append(Table(0, 2000.0, "generator/rollout/otel_ml/findings", "rollout", 319, FINDINGS, (other,)))
    facts = facts_of("run", numbered([*rows, RunStatus(0, 2000.0, "finished")]))
    facts.hosts = lambda: hosts
    return why(facts, Question(first=80, last=119)).sentences[1]


def test_ranks_of_two_roles_that_are_slow_on_one_host_at_once_are_the_host() -> None:
    assert said(HOSTS) == (
        "Caused: host n2 was slow: rank 2 was slow in forward, steps 80-119 and rank 0 was slow in generate, "
        "rollouts 160-239, of generator; 99.3 % of it goes with that."
    )


@pytest.mark.parametrize(
    ("hosts", "is_told"),
    [
        ({0: "n0", 1: "n0", 2: "n1", 3: "n1"}, True),
        ({0: "n0", 1: "n1", 2: "n0", 3: "n1"}, False),
        ({0: "n0", 1: "n0", 2: "n1", 3: "n2"}, False),
        ({0: "n0", 1: "n0", 2: "n0", 3: "n0"}, False),
        ({}, False),
    ],
    ids=["a host a stage", "a host a replica", "two hosts", "one host", "hosts unknown"],
)
def test_a_stage_that_is_all_of_a_host_may_be_the_host(hosts: Mapping[int, str], is_told: bool) -> None:
    facts = facts_of("run", job(findings=[no_rank("stage", "stage 1", "", since=0, last=159, saved_s=0.003)]))
    facts.hosts, facts.stages = (lambda: {"trainer": hosts}), (lambda _: {0: 0, 1: 0, 2: 1, 3: 1})

    said = "\n".join(one.text for one in why(facts, Question()).evidence)

    assert ("stage 1 is all that is on host n1: a host that is slow would look the same" in said) == is_told


@pytest.mark.parametrize(
    ("hosts", "more"),
    [
        ({}, {}),
        (HOSTS, {"rank": 1}),
        (HOSTS, {"since": 0, "until": 60}),
        ({**HOSTS, "trainer": {0: "n1", 1: "n2", 2: "n2", 3: "n3"}}, {}),
        ({**HOSTS, "generator": {0: "n2", 1: "n2", 2: "n4"}}, {}),
        ({"trainer": dict.fromkeys(range(4), "n2"), "generator": dict.fromkeys(range(3), "n2")}, {}),
    ],
    ids=["hosts unknown", "another host", "another time", "a rank there is not slow", "of the other role", "one host"],
)
def test_ranks_that_do_not_share_a_slow_host_are_told_for_themselves(hosts, more) -> None:
    text = said(hosts, **more)

    assert text.startswith("Caused: rank 2 was slow in forward, steps 80-119; ")
    assert "host" not in text
