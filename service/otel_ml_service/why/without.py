"""What steps would take if ranks, or a pipeline stage, took in a phase what the others take: asked by a person."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from otel_ml.quantities import seconds
from otel_ml_exporters.records import Span
from otel_ml_service.findings.frontier import exposed, line_of
from otel_ml_service.findings.peers import groups_of, is_pipeline
from otel_ml_service.findings.phases import STEP, UNTIMED
from otel_ml_service.findings.span_timers import span_timers
from otel_ml_service.findings.stages import surplus_of_stage
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.findings.what_if import saved_in_turns, saved_without, saved_without_stage
from otel_ml_service.findings.wording import listed, plural, steps_text
from otel_ml_service.why.facts import Place

__all__ = ["Removed", "WhatIf", "removed", "what_if"]

_FORM = "Write for example rank=2,phase=forward, rank=4-7,phase=data, or stage=3."


@dataclass(frozen=True, slots=True)
class Removed:
    """What is taken away: of these ranks in a phase, or of a stage, what they take longer than the others.

    Attributes:
        ranks: empty for a stage.
        phase: None for all that a stage works.
    """

    ranks: tuple[int, ...] = ()
    stage: int | None = None
    phase: str | None = None

    def __str__(self) -> str:
        who = f"stage {self.stage}" if self.stage is not None else f"rank{'s' * (len(self.ranks) > 1)} {self._listed}"
        if self.phase == UNTIMED:
            return f"{who} outside of timers"
        return who if self.phase is None else f"{who} in {self.phase}"

    @property
    def _listed(self) -> str:
        return listed([str(rank) for rank in self.ranks])


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What steps would take.

    Attributes:
        steps: that could be played; of `asked`, those with the spans of all ranks.
        step_s: what they took, mean.
        saved_s: by how much they would be shorter, mean; 0 where somebody else is as late.
        sentence: for a person; also where it cannot be told, and what would be needed.
    """

    without: str
    axis: str
    role: str
    asked: int
    steps: int
    step_s: float | None
    saved_s: float | None
    sentence: str


def removed(text: str) -> Removed:
    """Return what a person asks to take away.

    Raises:
        ValueError: it is nothing of the kind.

    Examples:
        >>> removed("rank=2,phase=forward"), removed("rank=0-1+5,phase=data").ranks, removed("stage=3")
        (Removed(ranks=(2,), stage=None, phase='forward'), (0, 1, 5), Removed(ranks=(), stage=3, phase=None))
    """
    # `rank=2` is cut into `rank`, `=` and `2`, of which every second one counts.
    given = dict(part.partition("=")[::2] for part in text.split(",")) if text else {}
    phase, ranks = given.get("phase"), tuple(_ranks(given.get("rank", "")))
    is_stage = re.fullmatch(r"\d{1,9}", given.get("stage", "")) is not None
    is_known = given.keys() <= {"rank", "stage", "phase"} and phase != ""
    # Ranks or a stage, not both and not neither; ranks take a phase, a stage may be all that it works.
    if not is_known or is_stage == bool(ranks) or ("stage" in given) != is_stage or (ranks and phase is None):
        raise ValueError(f"{text!r} names no rank with a phase, and no stage. {_FORM}")
    return Removed(ranks, int(given["stage"]) if is_stage else None, phase)


def _ranks(text: str) -> Iterator[int]:
    for part in filter(None, text.split("+")):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last < first + 100_000:
            raise ValueError(f"{part!r} are not ranks. {_FORM}")
        yield from range(first, last + 1)


def what_if(
    spans: Iterable[Span], place: Place, first: int, last: int, without: Removed, stages: Mapping[int, int]
) -> WhatIf:
    """Play the steps `first` to `last` of a place again, without something.

    Args:
        spans: of the run; others are left out.
        place: whose steps.
        first: step.
        last: step.
        without: what is taken away.
        stages: rank → pipeline stage, as far as it is known.
    """
    of_steps = _of_steps(spans, place, first, last)
    # A step without the spans of some rank is not played: the missing one may be who all wait for.
    most = max((len(of_rank) for of_rank in of_steps.values()), default=0)
    whole = [span_timers(of_rank) for of_rank in of_steps.values() if len(of_rank) == most]
    played = [found for timers, parents in whole if (found := _played(timers, parents, without, stages)) is not None]
    asked = steps_text(first, last, place.axis)
    common = (str(without), place.axis, place.role, last - first + 1, len(played))
    if not played:
        return WhatIf(*common, None, None, f"Cannot tell: {_needed(whole, without, stages, asked)}")
    step_s, saved_s = fmean(step_s for step_s, _ in played), fmean(saved for _, saved in played)
    return WhatIf(*common, step_s, saved_s, _said(asked, place.axis, without, played))


def _of_steps(spans: Iterable[Span], place: Place, first: int, last: int) -> Mapping[int, Mapping[int, Sequence[Span]]]:
    """Return step → rank → its spans, in the order in which they begin."""
    found: dict[int, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for span in spans:
        step = -1 if span.step is None else span.step
        if first <= step <= last and (span.role, span.axis) == place:
            found[step][span.rank].append(span)
    for of_rank in found.values():
        for rank in of_rank:
            of_rank[rank].sort(key=lambda span: (span.start_ns, -span.end_ns))
    return dict(sorted(found.items()))


def _played(
    timers: StepTimers, parents: Mapping[str, str], without: Removed, stages: Mapping[int, int]
) -> tuple[float, float] | None:
    """Return the seconds of a step, and by how many it would be shorter; None where that is not known."""
    timers = timers._replace(stages=tuple(stages.get(rank) for rank in timers.ranks))
    step_s = sum(entry.seconds for entry in exposed(timers, parents))
    saved = _saved(timers, parents, without)
    if not step_s or saved is None or not np.isfinite(saved):
        return None
    return step_s, min(saved, step_s)


def _saved(timers: StepTimers, parents: Mapping[str, str], without: Removed) -> float | None:
    if without.stage is not None:
        of_stage = surplus_of_stage(timers, parents, without.stage, without.phase)
        return None if of_stage is None else saved_without_stage(of_stage[0], of_stage[2], of_stage[1])
    rows = [timers.ranks.index(rank) for rank in without.ranks if rank in timers.ranks]
    phase = without.phase or ""
    # One rank at least has to be left to compare with.
    if not 0 < len(rows) < len(timers.ranks):
        return None
    if is_pipeline(timers.phases, timers.kinds):
        return _saved_in_turns(timers, rows, phase) if phase in timers.phases else None
    line = line_of(timers, parents)
    in_line = UNTIMED if phase == STEP else phase
    if line is None or in_line not in line.phases:
        return None
    return saved_without(line.seconds, rows, line.phases.index(in_line))


def _saved_in_turns(timers: StepTimers, rows: Sequence[int], phase: str) -> float:
    _, phases, seconds, _, stages, kinds, *_ = timers
    groups = groups_of(stages, phases, ~np.isnan(seconds), kinds)
    return saved_in_turns(seconds, phases, groups, kinds, rows, phases.index(phase))


def _needed(whole: Sequence[tuple[StepTimers, object]], without: Removed, stages: Mapping[int, int], asked: str) -> str:
    """Return what is missing."""
    if not whole:
        return (
            f"there are no spans of {asked}. Timers (`otel_ml.timed`) make them, and the exporter `jsonl` keeps them."
        )
    # In this order, as each is a reason why the next one could not be judged.
    phases = Counter(phase for timers, _ in whole for phase in timers.phases)
    ranks = {rank for timers, _ in whole for rank in timers.ranks}
    if without.phase is not None and without.phase not in {*phases, UNTIMED}:
        return f"there is no timer {without.phase!r} in {asked}. Timers there: {listed(sorted(phases), 8)}."
    if without.stage is not None and without.stage not in stages.values():
        return (
            "which rank is in which stage is not known: of a run that goes on only its service knows. Name its ranks."
        )
    if without.ranks and not ranks.intersection(without.ranks):
        have = "has" if len(without.ranks) == 1 else "have"
        return f"{without} {have} no spans in {asked}. There are those of {plural(len(ranks), 'rank')}."
    if len(ranks) < 2 or ranks.issubset(without.ranks):
        return "no rank is left to compare with."
    return f"timers of {asked} overlap, without one being around the other."


def _said(asked: str, axis: str, without: Removed, played: Sequence[tuple[float, float]]) -> str:
    step_s, saved_s = fmean(step_s for step_s, _ in played), fmean(saved for _, saved in played)
    known = f"; of {plural(len(played), axis)} all ranks are known"
    if not saved_s > 1e-3 * step_s:
        return f"Without {without}, {asked} would not be shorter: others are as late{known}."
    # `steps_text` says `step 5` of one, and `steps 5-9` of several.
    is_one = asked.startswith(f"{axis} ")
    each, in_all = ("", "") if is_one else (" each", f", {seconds(sum(saved for _, saved in played))} in all{known}")
    return (
        f"Without {without}, {asked} would take {seconds(step_s - saved_s)}{each} instead of {seconds(step_s)}: "
        f"{seconds(saved_s)} shorter{in_all}."
    )
