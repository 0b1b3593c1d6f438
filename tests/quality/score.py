"""How good it is: who is found, how soon, and who is accused wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from otel_ml_service.findings.detector import Detector, StepTimers
from otel_ml_service.findings.finding import Finding
from tests.quality.jobs import STEPS, Job

__all__ = ["Score", "score", "table"]


@dataclass
class Score:
    """Attributes:
    culprits: injected.
    first, among_three: of the culprits, how many were the costliest finding, and among the three, when they ended.
    exact: of those found, how many have a first and a last step within 2 of what is so.
    wrong: (rank, phase) that was accused and worked as its peers do.
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
        "| job | ranks that are slow | named first | among the first three | first and last step within 2 | "
        "steps in which nobody is slow | accused wrongly |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {kind} | {one.culprits} | {one.first} | {one.among_three} | {one.exact} | {one.healthy:,} | {one.wrong} |"
        for kind, one in scores
    ]
    return "\n".join(lines)


def score(job: Job) -> Score:
    detector = Detector()
    ranks = tuple(range(len(next(iter(job.seconds())))))
    stands: dict[int, list[Finding]] = {}
    known: dict[tuple[int, str], Finding] = {}
    every: list[Finding] = []
    for step, seconds in enumerate(job.seconds()):
        for finding in detector.step(step, StepTimers(ranks, job.phases, seconds, stages=job.stages)):
            known[finding.rank, finding.phase] = finding
            if finding.is_over:
                every.append(finding)
        stands[step] = sorted(detector.open.values(), key=lambda one: -one.extra_s)
    every += detector.open.values()
    result = Score(
        culprits=len(job.slow), healthy=sum(not any(one.at(step) for one in job.slow) for step in range(STEPS))
    )
    true = {one.rank for one in job.slow}
    for one in job.slow:
        order = list(dict.fromkeys(finding.rank for finding in stands[min(one.end, STEPS) - 1]))
        result.first += order[:1] == [one.rank] or (len(true) > 1 and order[:1] != [] and order[0] in true)
        result.among_three += one.rank in order[:3]
        of_it = [finding for finding in every if finding.rank == one.rank and finding.phase in one.phases]
        last = min(one.end, STEPS) - 1
        result.exact += any(abs(found.since - one.first) <= 2 and abs(found.last - last) <= 2 for found in of_it)
    result.wrong = len(_wrong(job, every))
    return result


def _wrong(job: Job, findings: list[Finding]) -> Counter[tuple[int, str]]:
    accused = Counter((finding.rank, finding.phase) for finding in findings)
    for one in job.slow:
        for phase in (*one.phases, "step"):
            accused.pop((one.rank, phase), None)
    return accused
