"""The parts of what is measured: each has a table, its place in the documentation, and the command that makes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.quality import changes
from tests.quality.jobs import KINDS, job
from tests.quality.pages import CHANGES, JOBS, ROLES, TRACES
from tests.quality.roles import role_job, score_roles
from tests.quality.score import Score, score
from tests.quality.score import table as scores
from tests.quality.traces import traces

__all__ = ["PARTS", "SEEDS", "SERIES", "Asked", "Part", "Tell", "by_kind", "by_kind_of_roles"]

COMMAND = "python -m tests.quality"

Tell = Callable[[str], None]
"""Is told how far a part is."""


@dataclass(frozen=True)
class Asked:
    """How much is measured.

    Attributes:
        seeds: of the jobs.
        series: of each kind of noise, and as many with a change.
        traces: a folder with published traces; None without them.
    """

    seeds: range
    series: int
    traces: Path | None


@dataclass(frozen=True)
class Part:
    """A table: where it stands, the command that makes it alone, and its making."""

    place: tuple[str, str]
    command: Callable[[Asked], str]
    table: Callable[[Asked, Tell], str]


def by_kind(seeds: range, tell: Tell = lambda _: None) -> Mapping[str, Score]:
    """Return the score of each kind of job, over the jobs of these seeds, and of all together."""
    return _summed(((one.kind, score(one)) for one in map(job, seeds)), len(seeds), tell)


def by_kind_of_roles(seeds: range, tell: Tell = lambda _: None) -> Mapping[str, Score]:
    """Return the same of jobs of two roles."""
    return _summed(((one.kind, score_roles(one)) for one in map(role_job, seeds)), len(seeds), tell)


def _summed(of_jobs: Iterable[tuple[str, Score]], count: int, tell: Tell) -> Mapping[str, Score]:
    found: dict[str, Score] = defaultdict(Score)
    for done, (kind, of_job) in enumerate(of_jobs, 1):
        found[kind] += of_job
        tell(f"{done:,} of {count:,} jobs")
    found["all"] = sum(found.values(), Score())
    return found


def _seeds_of(asked: Asked, name: str) -> str:
    beginning = f" --from {asked.seeds.start}" if asked.seeds.start else ""
    return f"{COMMAND} {name} --seeds {len(asked.seeds)}{beginning}"


def _traces(asked: Asked, tell: Tell) -> str:
    if asked.traces is None:
        raise ValueError("The traces are not here: --traces FOLDER, with trace-<name>.parquet in it.")
    return "\n".join(traces(asked.traces, tell))


PARTS: Mapping[str, Part] = {
    "jobs": Part(
        JOBS,
        lambda asked: _seeds_of(asked, "jobs"),
        lambda asked, tell: scores(by_kind(asked.seeds, tell).items()),
    ),
    "roles": Part(
        ROLES,
        lambda asked: _seeds_of(asked, "roles"),
        lambda asked, tell: scores(by_kind_of_roles(asked.seeds, tell).items()),
    ),
    "traces": Part(TRACES, lambda _: f"{COMMAND} traces --traces FOLDER", _traces),
    "changes": Part(
        CHANGES,
        lambda asked: f"{COMMAND} changes --series {asked.series}",
        lambda asked, tell: changes.table(asked.series, tell),
    ),
}
"""By name, in the order in which they are made."""

SEEDS, SERIES = 40 * len(KINDS), 400
"""What the tables of the documentation are made of."""
