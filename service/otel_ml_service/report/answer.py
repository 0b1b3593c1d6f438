"""What a reader wants to know first: is something wrong, whose fault is it, what does it cost, how far is the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from otel_ml.quantities import figure, percent, seconds
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import JsonValue, Table
from otel_ml_service.findings.finding import role_of_place
from otel_ml_service.findings.phases import is_waiting
from otel_ml_service.report.axes import beside
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import last_value
from otel_ml_service.report.markup import Markup, joined, script_data, tag
from otel_ml_service.report.steps_told import Told
from otel_ml_service.report.timing import timers
from otel_ml_service.stored_runs.failure import failure_lines
from otel_ml_service.stored_runs.run_history import History, Series, SeriesName
from otel_ml_service.why.facts import RunFacts
from otel_ml_service.why.finding_text import where_in
from otel_ml_service.why.not_finite import no_numbers_now

__all__ = ["FINDINGS", "Trouble", "answer", "trouble_of", "troubles"]

FINDINGS = "otel_ml/findings"
_SHOWN = 5
_LASTS = ("stage", "load", "shape")
"""Kinds of findings that each of their steps shows as well as another."""
_WARM_UP = 3
"""Steps in which a job still starts, and ranks come when they come."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A row of a table of findings.

    Attributes:
        place: what comes first in the names of its role and axis, `generator/`; empty for the trainer's steps.
        who: `rank 3`, `ranks 2, 5`, `stage 2`, or `nobody`.
        shows: the step that shows it best.
        until: None while it lasts.
        share: of the time of the steps that had it; None where nothing tells how long these took.
        amount: the metric that says how much ranks are given to do, and `given` how many times as much as the others.
    """

    place: str
    role: str
    axis: str
    level: str
    kind: str
    rank: JsonValue
    who: str
    phase: str
    since: int
    until: int | None
    extra_s: float | None
    cost_s: float | None
    slowdown: float | None
    shows: int
    share: float | None
    amount: str = ""
    given: float | None = None


def troubles(run: Contents) -> list[Trouble]:
    """Return all findings of a run, the most expensive first."""
    found = [
        trouble_of(run, name.removesuffix(FINDINGS), table, dict(zip(table.columns, row, strict=False)))
        for name, table in run.tables.items()
        if name == FINDINGS or name.endswith(f"/{FINDINGS}")
        for row in table.rows
    ]
    # What lasts comes before what is over.
    return sorted(
        (one for one in found if one is not None), key=lambda one: (one.until is not None, -(one.cost_s or 0))
    )


def trouble_of(run: Contents, place: str, table: Table, row: Mapping[str, JsonValue]) -> Trouble | None:
    """Return what a row of a table of findings says; None where it says since when of nothing."""
    since, until = _whole(row.get("since")), _whole(row.get("until"))
    if since is None:
        return None
    axis = table.axis or DEFAULT_AXIS
    extra = _number(row.get("s per step"))
    timed = run.history.series.get(SeriesName(axis, f"{place}time/step"), {})
    last = until if until is not None else max(timed, default=since)
    # `generator/` and `generator/rollout/` are of generator, `rollout/` is another axis of the trainer.
    role = place.removesuffix("/").removesuffix(f"/{axis}") if place not in {"", f"{axis}/"} else "trainer"
    slow = run.times[role, axis].all() if (role, axis) in run.times else {}
    shows = _shown_by(slow, _whole(row.get("rank")), since, last, _whole(row.get("at step")))
    if row.get("kind") in _LASTS:
        shows = min((step for step in timed if since + _WARM_UP <= step <= last), default=since)
    return Trouble(
        place, role, axis, str(row.get("level", "")), str(row.get("kind", "")), row.get("rank"),
        str(row.get("place") or f"rank {row.get('rank')}"), str(row.get("phase") or ""), since, until,
        extra, _number(row.get("s in all")), _number(row.get("slowdown")),
        shows=shows, share=_share(run.history, axis, place, since, last, extra),
        amount=str(row.get("amount") or ""), given=_number(row.get("given")),
    )  # fmt: skip


def _shown_by(
    slow: Mapping[int, Mapping[int, float]], rank: int | None, since: int, last: int, said: int | None
) -> int:
    """Return the step whose span the finding names, if that is one of its own; else the one in which it was worst."""
    if said is not None and since <= said <= last:
        return said
    # Nobody is rank -1: of a finding that names no rank nothing is known here, and its first step is shown.
    within = {step: found.get(-1 if rank is None else rank, math.nan) for step, found in slow.items()}
    known = {step: value for step, value in within.items() if since <= step <= last and not math.isnan(value)}
    return max(known, key=lambda step: known[step], default=since)


def _number(value: JsonValue) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) else None


def _whole(value: JsonValue) -> int | None:
    number = _number(value)
    return None if number is None else int(number)


def _share(history: History, axis: str, place: str, since: int, last: int, extra_s: float | None) -> float | None:
    seconds = _step_seconds(history, axis, place)
    # An axis may count tokens: step by step, a finding that lasts would take minutes.
    within = [seconds[step] for step in range(since, last + 1) if step in seconds] if last - since < 10**6 else []
    return extra_s / fmean(within) if extra_s and within and fmean(within) > 0 else None


def _step_seconds(history: History, axis: str, place: str) -> Series:
    """Return the time of each step: of the slowest rank, as its timers' account adds up, else as it was timed."""
    account = [
        series
        for key, series in history.series.items()
        if key.axis == axis and key.name.startswith(f"{place}time/exposed/") and not key.name.endswith("/rank")
    ]
    if not account:
        return history.series.get(SeriesName(axis, f"{place}time/step"), {})
    total: dict[int, float] = {}
    for series in account:
        for step, value in series.items():
            total[step] = total.get(step, 0.0) + value
    return total


def answer(run: Contents, told: Told, *, is_live: bool = False) -> Markup:
    """Return the sentences, the state and how far the run is."""
    failed = [
        tag("p", tag("b", line, class_="failed"), class_="answer") for line in failure_lines(run.history.failures)
    ]
    every = troubles(run)
    # Those pauses are in what is said of the steps already.
    found = [one for one in every if one.kind != "pause" or one.phase not in told.phases]
    sentences = [_sentence(run, one) for one in found[:_SHOWN]]
    sentences = sentences or [tag("p", _nothing(run, is_live=is_live), class_="answer calm")]
    beside = [tag("p", told.beside, class_="answer calm")] if told.beside else []
    sentences = [*_not_finite(run.facts), *_of_steps(told), *sentences, *beside]
    more = [tag("p", f"{len(found) - _SHOWN} more below.", class_="quiet")] if len(found) > _SHOWN else []
    bands = [
        {"role": one.role, "axis": one.axis, "since": one.since, "until": one.until, "said": f"{one.kind}: {one.who}"}
        for one in every
    ]
    marks = tag("div", hidden="", data_bands=script_data(bands)) if bands else Markup("")
    return tag("section", *failed, *sentences, *more, _state(run, is_live), marks, class_="top")


def _not_finite(facts: RunFacts) -> list[Markup]:
    """Return which metrics are no longer numbers, the first one first."""
    found = sorted(no_numbers_now(facts), key=lambda one: one.since)[:_SHOWN]
    return [tag("p", tag("b", one.what, class_="critical"), f"{one.before}. ", class_="answer") for one in found]


def _of_steps(told: Told) -> list[Markup]:
    """Return what `why` says of the steps: what happened and the verdict, with the step to look at."""
    if told.answer is None:
        return []
    first, verdict, _ = told.answer.sentences
    look = next(iter(told.answer.look_at), None)
    see = "" if look is None else _see(told.answer.role, look.axis, look.step)
    return [tag("p", f"{first} {verdict} ", see, class_="answer calm")]


def _see(role: str, axis: str, step: int) -> Markup:
    place = script_data({"axis": axis, "step": step, "role": role})
    return tag("button", f"see {axis} {step:,}", type="button", data_goto=place)


def _sentence(run: Contents, one: Trouble) -> Markup:
    step = _see(one.role, one.axis, one.shows)
    met = beside(run, one.role, one.axis, one.since)
    where = f" ({met})" if met else ""
    return tag("p", tag("b", _what(one), class_=one.level), f"{where}{_cost(one)}. ", step, class_="answer")


def _what(one: Trouble) -> str:
    of = "" if one.role == "trainer" else f" of {one.role}"
    if one.kind == "shape":
        data = f"{one.amount} of each rank" if one.amount else "the data"
        return f"Step time{of} follows {data} ({one.phase} vary together), nobody is slow, {_when(one)}"
    lasts = one.until is None
    # A place that is a role names itself: not "role generator of generator".
    of = "" if role_of_place(one.who) else of
    if one.kind == "load":
        has = "had" if not lasts else "has" if one.who.startswith("rank ") else "have"
        much = f"{figure(one.given or 0.0)} × the {one.amount} of the others"
        return f"{_capitalized(one.who)}{of} {has} {much}, {_when(one)}"
    if one.kind == "pause":
        job = "The job" if not of else f"Role {one.role}"
        who = job if one.who == "nobody" else f"{_capitalized(one.who)}{of}"
        where = f" {where_in(one.phase)}" if one.phase else ""
        return f"{who} {'pauses' if lasts else 'paused'} now and then{where}, {_when(one)}"
    if one.kind == "stage":
        more = f"{figure(1 + (one.slowdown or 0.0))} × the work of the other stages"
        return f"{_capitalized(one.who)}{of} {'has' if lasts else 'had'} {more}, {_when(one)}"
    verb = ("is" if one.kind == "slow" else "has been") if lasts else "was"
    where = f" {where_in(one.phase)}" if one.phase else ""
    return f"{_capitalized(one.who)}{of} {verb} {one.kind}{where}, {_when(one)}"


def _when(one: Trouble) -> str:
    name = one.axis if one.axis != DEFAULT_AXIS else "step"
    if one.until is None or one.since == one.until:
        return f"{'since ' if one.until is None else ''}{name} {one.since:,}"
    return f"{name}s {one.since:,}–{one.until:,}"


def _cost(one: Trouble) -> str:
    parts = [f"+{seconds(one.extra_s)} a step"] if one.extra_s else []
    if one.share is not None:
        parts.append(f"{percent(min(one.share, 1.0))} of the time")
    elif one.slowdown:
        parts.append(f"{percent(one.slowdown)} longer than {'before' if role_of_place(one.who) else 'the usual rank'}")
    parts += [f"{seconds(one.cost_s)} in all"] if one.cost_s else []
    return f": {', '.join(parts)}" if parts else ""


def _nothing(run: Contents, *, is_live: bool) -> str:
    if not run.facts.places:
        yet = " yet" if is_live else ""
        return f"No step was recorded{yet}. Call otel_ml.set_step(step), or loop over otel_ml.steps(loader)."
    timed = [timer for timer in timers(run.history) if not timer.name.endswith("time/step") and timer.name != "step"]
    if not timed:
        return "No timers: nothing tells where the time goes. Time the parts of a step with otel_ml.timed(…)."
    # Timers that are around others have no share of their own.
    mostly = max(
        (timer for timer in timed if timer.share is not None), key=lambda timer: timer.share or 0, default=None
    )
    where = ""
    if mostly is not None and mostly.share is not None:
        waits = ", which is waiting" if is_waiting(mostly.name) else ""
        where = f" {percent(min(mostly.share, 1.0))} of the time goes to {mostly.name}{waits}."
    if run.ranks is not None and run.ranks < 2:
        return f"One rank: there is nobody to compare it with.{where}"
    return f"No rank was found slow or silent.{where}"


def _state(run: Contents, is_live: bool) -> Markup:
    read = run.history
    status = "live" if is_live else read.status
    kind = "running" if is_live else read.status
    parts: list[str] = [tag("b", status, class_=kind)]
    # Of several roles that count on this axis, the one that is furthest.
    last = max((max(done) for (_, axis), done in run.steps.items() if axis == DEFAULT_AXIS and done), default=None)
    left = _newest(read, "progress/remaining_steps")
    # Steps count from 0: after step 9 ten are done.
    if last is not None:
        of = f" of {last + 1 + int(left):,}" if left is not None else ""
        parts.append(f"step {last:,}{of}")
    step_s = _step_time(read)
    parts += [f"lately {seconds(step_s)} a step"] if step_s else []
    remaining = _newest(read, "time/remaining")
    unfinished = is_live or read.status == "running"
    parts += [f"{seconds(remaining)} left"] if remaining is not None and remaining > 0 and unfinished else []
    parts += [f"{seconds(read.seconds)} so far" if unfinished else seconds(read.seconds)]
    bar = Markup("")
    if last is not None and left is not None:
        bar = tag("progress", value=last + 1, max=last + 1 + int(left), aria_label="steps done")
    return joined([tag("p", *_between(parts), class_="state"), bar])


def _between(parts: Sequence[str]) -> Iterable[str]:
    for number, part in enumerate(parts):
        yield from ((" · ", part) if number else (part,))


def _newest(read: History, name: str) -> float | None:
    series: Mapping[int, float] = read.series.get(SeriesName(DEFAULT_AXIS, name), {})
    value = last_value(series) if series else math.nan
    return value if math.isfinite(value) else None


def _step_time(read: History) -> float | None:
    """Return the usual time of the newest steps."""
    series: Any = _step_seconds(read, DEFAULT_AXIS, "")
    # The one in the middle: a mean would be moved by a single pause.
    newest = sorted(list(series.values())[-50:])
    return newest[len(newest) // 2] if newest else None


def _capitalized(who: str) -> str:
    """Begin a sentence with who it was; names of hosts stay as they are."""
    return who[:1].upper() + who[1:]
