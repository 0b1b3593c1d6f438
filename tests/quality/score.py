"""How good it is: who is found, how soon, and who is accused wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.quality.truths import STEPS, Job, Pausing

__all__ = ["Score", "score", "table"]


@dataclass
class Score:
    """Attributes:
    culprits: injected: ranks, places, stages, pauses, and jobs whose times go with their data.
    first, among_three: of the culprits, how many were the costliest finding, and among the three, when they ended.
    exact: of those found, how many have a first and a last step within 2 of what is so.
    wrong: (place, phase) that was said to be slow, or to vary, and worked as its peers do.
    healthy: steps in which nobody was slow.
    """

    culprits: int = 0
    first: int = 0
    among_three: int = 0
    exact: int = 0
    wrong: int = 0
    healthy: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(**{name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__})


def table(scores: Iterable[tuple[str, Score]]) -> str:
    """Return a row for each kind of job, in Markdown."""
    lines = [
        "| job | to be found | named first | among the first three | first and last step within 2 | "
        "steps in which nobody is slow | accused wrongly |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind} | {one.culprits} | {one.first} | {one.among_three} | {one.exact} | {one.healthy:,} | {one.wrong} |"
        for kind, one in scores
    ]
    return "\n".join(lines)


def score(job: Job) -> Score:
    step_findings = StepFindings()
    ranks = tuple(range(len(next(iter(job.seconds())))))
    stands: dict[int, list[Finding]] = {}
    every: list[Finding] = []
    for step, seconds in enumerate(job.seconds()):
        where = {"stages": job.stages, "hosts": job.hosts, "topologies": job.topologies}
        changes = step_findings.step(step, StepTimers(ranks, job.phases, seconds, **where), {})
        every += [finding for finding in changes if finding.is_over]
        stands[step] = sorted(step_findings, key=lambda one: -one.extra_s)
    every += step_findings
    wanted = [one for one in job.slow if one.is_to_be_found]
    result = Score(
        culprits=len(wanted), healthy=sum(not any(one.at(step) for one in job.slow) for step in range(STEPS))
    )
    true = {one.place for one in job.slow}
    for one in wanted:
        known_at = one.end if isinstance(one, Pausing) else one.end - 1  # that it was a pause shows in the step after
        order = list(dict.fromkeys(finding.place for finding in stands[min(known_at, STEPS - 1)]))
        result.first += order[:1] == [one.place] or (len(true) > 1 and order[:1] != [] and order[0] in true)
        result.among_three += one.place in order[:3]
        of_it = [found for found in every if found.place == one.place and found.phase in (one.phases or (found.phase,))]
        last = min(one.end, STEPS) - 1
        result.exact += any(abs(found.since - one.first) <= 2 and abs(found.last - last) <= 2 for found in of_it)
    result.wrong = len(_wrong(job, every))
    return result


def _wrong(job: Job, findings: list[Finding]) -> Counter[tuple[str, str]]:
    accused = Counter((finding.place, finding.phase) for finding in findings)
    for one in job.slow:
        true = [subject for subject in accused if subject[0] == one.place]
        for subject in true:
            if not one.phases or subject[1] in (*one.phases, "step"):
                accused.pop(subject)
    return accused
