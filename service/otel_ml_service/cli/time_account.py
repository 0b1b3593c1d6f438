"""Where the time of a run's steps goes, and what was found: what `otel-ml show` says of it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from otel_ml.quantities import figure, seconds
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import JsonValue, Table
from otel_ml_service.findings.whose_account import account_rank
from otel_ml_service.findings.wording import steps_text
from otel_ml_service.stored_runs.run_history import History, Series, SeriesName
from otel_ml_service.why.finding_text import where_in

__all__ = ["FINDINGS", "Share", "finding_lines", "is_exposed", "time_account"]

FINDINGS = "otel_ml/findings"
"""The table of findings, after the name of its role and axis."""

# Not `…/rank`: it says who was in front, not a time.
_EXPOSED = re.compile(r"^(?P<place>(?:.*/)?)time/exposed/(?P<phase>.+)(?<!/rank)$")


class Share(NamedTuple):
    """What a timer adds to the step of the slowest rank.

    Attributes:
        place: role and axis of the name, with a slash; empty for the trainer's steps.
        seconds: of a step, the mean over those that have an account; those of a place add up to its step.
        share: of the step.
        rank: at the front for most of that time; None where nothing tells.
        of_rank: whose account all of a place is, where phases take turns; None where it is that of all ranks.
        last: the newest step that has one.
    """

    place: str
    phase: str
    seconds: float
    share: float
    rank: int | None
    of_rank: int | None = None
    last: int = 0


def is_exposed(name: str) -> bool:
    """Whether a published name is of the account of a step's time.

    Examples:
        >>> is_exposed("generator/time/exposed/forward/rank"), is_exposed("time/forward")
        (True, False)
    """
    return "/time/exposed/" in f"/{name}"


def time_account(history: History) -> list[Share]:
    """Return the shares of each role and axis, the largest first; nothing of those whose steps have no account.

    Examples:
        >>> of = History()
        >>> of.series[SeriesName("step", "time/exposed/forward")] = {0: 3.0, 1: 3.0}
        >>> of.series[SeriesName("step", "time/exposed/forward/rank")] = {0: 2.0, 1: 2.0}
        >>> of.series[SeriesName("step", "time/exposed/reduce")] = {0: 1.0, 1: 1.0}
        >>> of.series[SeriesName("step", "time/exposed/reduce/rank")] = {0: 0.0, 1: 2.0}
        >>> [(one.phase, one.seconds, one.share, one.rank) for one in time_account(of)]
        [('forward', 3.0, 0.75, 2), ('reduce', 1.0, 0.25, 0)]
    """
    found: dict[tuple[str, str], list[tuple[str, Series, Series]]] = {}
    for key, series in history.series.items():
        match = _EXPOSED.match(key.name)
        ranks = history.series.get(SeriesName(key.axis, f"{key.name}/rank"))
        if match is not None and ranks is not None:
            told = match["phase"], _numbers(series), _numbers(ranks)
            found.setdefault((key.axis, match["place"]), []).append(told)
    return [share for (_, place), timers in found.items() for share in _shares(place, timers)]


def _numbers(series: Series) -> Series:
    """Return what may be seconds, or ranks: a program may write anything into series of these names."""
    return {step: value for step, value in series.items() if 0 <= value < math.inf}


def _shares(place: str, timers: Sequence[tuple[str, Series, Series]]) -> list[Share]:
    # A phase that a step has not adds nothing to it, so all are divided by the steps that have any.
    steps = max(len(set().union(*(series for _, series, _ in timers))), 1)
    total = sum(sum(series.values()) for _, series, _ in timers)
    of_rank = account_rank({phase: ranks for phase, _, ranks in timers})
    last = max((step for _, series, _ in timers for step in series), default=0)
    shares = [
        Share(
            place,
            phase,
            seconds / steps,
            share,
            _at_the_front(series, ranks),
            of_rank,
            last,
        )
        # The loops over one element name a value that is used twice.
        for phase, series, ranks in timers
        for seconds in [sum(series.values())]
        for share in [seconds / total if total > 0 else 0.0]
    ]
    return sorted(shares, key=lambda one: -one.seconds)


def _at_the_front(series: Series, ranks: Series) -> int | None:
    seconds: Counter[int] = Counter()
    for step, rank in ranks.items():
        # By the seconds and not by the number of steps: who is in front for long counts more.
        seconds[int(rank)] += series.get(step, 0.0)  # type: ignore[assignment] # a Counter of seconds
    return max(seconds, key=lambda rank: seconds[rank], default=None)


def finding_lines(table: Table) -> Iterator[str]:
    """Yield a line for each finding of a table.

    Examples:
        >>> columns = ("level", "kind", "place", "phase", "since", "until", "s per step", "s saved per step")
        >>> rows = (("warning", "slow", "rank 2", "forward", 40, 69, 0.025, 0.02),)
        >>> list(finding_lines(Table(1, 0.0, "otel_ml/findings", "step", 80, columns, rows)))
        ['warning: rank 2 slow in forward, steps 40-69: +25 ms a step, 20 ms shorter without it']
        >>> columns += ("times",)
        >>> rows = (("warning", "pause", "nobody", "ckpt", 9, 59, 0.4, 0.4, 6),)
        >>> [line.partition(":")[2] for line in finding_lines(Table(1, 0.0, "findings", "step", 80, columns, rows))]
        [' nobody is slow, the job pauses in ckpt, 6 times, steps 9-59: +400 ms a step, 400 ms shorter without it']
        >>> columns = (*columns[:5], "given", "amount")
        >>> rows = (("warning", "load", "rank 2", "forward", 0, 1.4, "tokens"),)
        >>> list(finding_lines(Table(1, 0.0, "otel_ml/findings", "step", 80, columns, rows)))
        ['warning: rank 2 had 1.4 × the tokens of the others, since step 0']
    """
    # `strict=False`: a row of a stored table may be shorter than its header.
    axis = table.axis or DEFAULT_AXIS
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=False))
        yield f"{cells.get('level')}: {_what(cells)}, {_when(axis, cells)}{_price(cells)}"


def _what(cells: Mapping[str, JsonValue]) -> str:
    # Tables of services that found ranks alone have `rank` and no `place`.
    place, phase = cells.get("place") or f"rank {cells.get('rank')}", cells.get("phase")
    kind = cells.get("kind")
    if kind == "stage":
        return f"{place} has more work than the others"
    if kind == "load":
        given = cells.get("given")
        times = figure(given) if isinstance(given, (int, float)) else given
        return f"{place} had {times} × the {cells.get('amount')} of the others"
    if kind == "shape":
        return f"{place} is slow: {phase} go with {cells.get('amount') or 'the shape of the data'}"
    where = f" {where_in(str(phase))}" if phase else ""
    if kind == "pause":
        who = "nobody is slow, the job" if place == "nobody" else place
        return f"{who} pauses{where}, {cells.get('times')} times"
    return f"{place} {kind}{where}"


def _when(axis: str, cells: Mapping[str, JsonValue]) -> str:
    since, until = cells.get("since"), cells.get("until")
    if isinstance(since, int) and isinstance(until, int):
        return steps_text(since, until, axis)
    return f"since {axis} {since}"


def _price(cells: Mapping[str, JsonValue]) -> str:
    extra, saved = cells.get("s per step"), cells.get("s saved per step")
    price = f": +{seconds(extra)} a step" if isinstance(extra, float) else ""
    if price and cells.get("others wait") == "no":
        return f"{price} of its own, most ranks do not wait for it"
    # 0 saved: without this, another rank is as slow, and the step is as long.
    return f"{price}, {seconds(saved)} shorter without it" if price and isinstance(saved, float) and saved else price
