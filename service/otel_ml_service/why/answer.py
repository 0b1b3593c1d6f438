"""What is answered: a verdict in three sentences, the account, the evidence, where to look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from otel_ml_service.stored_runs.failure import Failure

__all__ = ["ABOUT", "CAUSED", "Answer", "Evidence", "Level", "Look", "Phase", "Verdict"]

Verdict = Literal["caused", "coincided", "cannot tell"]

ABOUT = "step time"
"""What an answer is about that is about no metric."""

CAUSED = 0.8
"""Part of an effect that has to go with its cause, for the cause to be called that."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What a phase exposes of the steps in question.

    Attributes:
        seconds: a step.
        usual_s: in the steps it is compared with; None without those.
        share: of the step.
        rank: at the front in most of the steps; None where nothing tells.
        at_front: in how many of `steps`.
    """

    name: str
    seconds: float
    usual_s: float | None
    share: float
    rank: int | None
    at_front: int
    steps: int


@dataclass(frozen=True, slots=True)
class Level:
    """What a metric was of a part of its samples.

    Attributes:
        by: `task`, or the policy `version` that made them.
        name: which one.
        before: the mean of the 16 steps before the change; None without samples then, or without a change.
        after: of those since then, without a change of the newest 16; None without samples.
    """

    by: Literal["task", "version"]
    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact of the run.

    Attributes:
        kind: `finding`, `change`, `event`, `restart`, `parameter`, `completeness`, `follows`, `link`, `state`,
            `pause`.
        step: where it begins, on the axis of the answer; None where it has none.
    """

    kind: str
    step: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Look:
    """A step to look at, and what shows there."""

    axis: str
    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Why something of a run is as it is.

    Attributes:
        run: its id.
        about: `step time`, or a metric's published name.
        role, axis: whose steps.
        first, last: the steps that are explained; None where there are none.
        verdict: `caused` where something leads there and 80 % of the effect would go with it; `coincided` where
            something changed at the same time; else `cannot tell`.
        effect: seconds a step, or the metric's change; None where there is none.
        explained: part of the effect that would go with the cause; 0 without one.
        sentences: what happened, why, what to do.
        account: phases that add up to the step where `adds_up`; else the slowest rank of each.
        of_rank: whose account it is, where phases take turns and no spans show the path; None where it is of all ranks.
        levels: the metric by task and by the policy version of its samples, where it is recorded for several.
        failures: what processes of the run failed with, the first one first, whatever was asked.
    """

    run: str
    about: str
    role: str
    axis: str
    first: int | None
    last: int | None
    verdict: Verdict
    effect: float | None
    explained: float
    sentences: tuple[str, str, str]
    account: tuple[Phase, ...] = ()
    adds_up: bool = False
    of_rank: int | None = None
    evidence: tuple[Evidence, ...] = ()
    look_at: tuple[Look, ...] = ()
    failures: tuple[Failure, ...] = ()
    levels: tuple[Level, ...] = ()
