"""Timers of a run, the longest first, each with its share of the step.

A share is what the timer exposes of the step of the slowest rank (`findings/frontier.py`): those of all timers add up.
What each timer's slowest rank takes does not, where ranks wait for each other.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from otel_ml.wire.reductions import row_of
from otel_ml_service.findings.whose_account import account_rank
from otel_ml_service.stored_runs.run_history import History, Series, SeriesName

__all__ = ["Timer", "timers"]

_TIMER = re.compile(r"^(?P<place>(?:.*/)?)time/(?P<name>.+)$")

_EXPOSED = "exposed/"

_ESTIMATES = frozenset({"remaining", "remaining_estimate"})
"""Below `time/`, and yet no time that was spent: `Progress` and Megatron estimate them anew in each step."""

_SO_FAR = frozenset({"total", "batches", "samples", "tokens"})
"""What Megatron counts below `time/` since the job began: alone, each may be the name of a user's timer."""


class Timer(NamedTuple):
    """A timer over all steps.

    Attributes:
        name: as published, without `time/`.
        place: what the names of its role and axis begin with; empty for the trainer's steps.
        mean_s, longest_s: of a step, by the first reduction of the timer (the slowest rank, unless the user chose).
        total_s: over all steps that have it.
        share: of the time of all steps of its role and axis; None where nothing tells.
        slowest: the rank that was at the front for most of what it exposes; without that, most often the slowest one;
            None without `argmax`.
        of_rank: whose account shares are of, where phases take turns; None where it is that of all ranks.
        last: the newest step that has it.
    """

    name: str
    place: str
    steps: int
    mean_s: float
    longest_s: float
    total_s: float
    share: float | None
    slowest: int | None
    of_rank: int | None
    last: int


def timers(history: History) -> list[Timer]:
    """Return all timers, the one with the largest total first."""
    named = list(_named(history))
    # Once a place: each account goes through all series of the run.
    accounts = {(axis, place): _account(history, axis, place) for (axis, _), place, _ in named}
    found = [_timer(history, key, place, name, accounts[key.axis, place]) for key, place, name in named]
    return sorted(found, key=lambda timer: -timer.total_s)


def _named(history: History) -> Iterator[tuple[SeriesName, str, str]]:
    for key in history.series:
        match = _TIMER.match(key.name)
        if match is None or match["name"] in _ESTIMATES or match["name"].startswith(_EXPOSED):
            continue
        if match["name"] in _SO_FAR and _is_counted(history, key.axis, match["place"]):
            continue
        # `time/forward/max` is a further reduction where `time/forward` is there, and else a timer called
        # `forward/max`.
        base, _, last = key.name.rpartition("/")
        is_further = SeriesName(key.axis, base) in history.series and (row_of(last) is not None or _is_rank(last))
        if not is_further and history.series[key]:
            yield key, match["place"], match["name"]


def _is_counted(history: History, axis: str, place: str) -> bool:
    """Whether the time so far stands beside the number of batches, as Megatron has them."""
    return all(SeriesName(axis, f"{place}time/{name}") in history.series for name in ("total", "batches"))


def _is_rank(last: str) -> bool:
    return re.fullmatch(r"rank_\d+", last) is not None


_ByRank = Mapping[int, float]
"""Seconds that a timer exposed while a rank was at the front."""


class _Account(NamedTuple):
    """What the steps of a role and axis take.

    Attributes:
        whole_s: of all steps that were timed.
        exposed: timer → what it exposes; empty where there is no account.
        of_rank: whose it is; None where it is that of all ranks.
    """

    whole_s: float
    exposed: Mapping[str, _ByRank]
    of_rank: int | None


def _account(history: History, axis: str, place: str) -> _Account:
    whole = history.series.get(SeriesName(axis, f"{place}time/step"), {})
    fronts = {phase: history.series[name] for phase, name in _fronts(history, axis, place).items()}
    whole_s = sum(value for value in whole.values() if value >= 0)
    return _Account(whole_s, _exposed(history, axis, place), account_rank(fronts))


def _timer(history: History, key: SeriesName, place: str, name: str, account: _Account) -> Timer:
    series = history.series[key]
    values: Sequence[float] = [value for value in series.values() if value >= 0]
    exposed = account.exposed
    return Timer(
        name=place + name,
        place=place,
        steps=len(values),
        mean_s=fmean(values) if values else 0.0,
        longest_s=max(values, default=0.0),
        total_s=sum(values),
        share=_share(exposed, name) if exposed else _share_of_steps(history, key, place, account.whole_s),
        slowest=_at_the_front(exposed.get(name)) if exposed else _mostly_slowest(history, key),
        of_rank=account.of_rank,
        last=max(series),
    )


def _exposed(history: History, axis: str, place: str) -> dict[str, _ByRank]:
    """Return what each timer of a role and axis exposes; empty where there is no account."""
    found: dict[str, _ByRank] = {}
    for phase, name in _fronts(history, axis, place).items():
        series, seconds = history.series[SeriesName(axis, name.name.removesuffix("/rank"))], Counter[int]()
        for step, rank in _ranks(history.series[name]):
            seconds[rank] += series.get(step, 0.0)  # type: ignore[assignment] # a Counter of seconds
        found[phase] = seconds
    return found


def _ranks(series: Series) -> Iterator[tuple[int, int]]:
    """Yield the steps at which a series says a rank: a program may write anything into one of that name."""
    return ((step, int(rank)) for step, rank in series.items() if 0 <= rank < math.inf)


def _fronts(history: History, axis: str, place: str) -> dict[str, SeriesName]:
    """Return timer → the series of who is at the front after it."""
    prefix = f"{place}time/{_EXPOSED}"
    of_ranks = {key: SeriesName(axis, f"{key.name}/rank") for key in history.series if key.axis == axis}
    return {
        key.name.removeprefix(prefix): ranks
        for key, ranks in of_ranks.items()
        if key.name.startswith(prefix) and ranks in history.series
    }


def _share(account: Mapping[str, _ByRank], name: str) -> float | None:
    """Return a timer's share; None of one that is around others: it counts without them."""
    of_all = sum(sum(seconds.values()) for seconds in account.values())
    return sum(account[name].values()) / of_all if name in account and of_all > 0 else None


def _share_of_steps(history: History, key: SeriesName, place: str, whole_s: float) -> float | None:
    """Return the share of what the steps took; None where none was timed."""
    if whole_s <= 0:
        return None
    whole = history.series[SeriesName(key.axis, f"{place}time/step")]
    of_steps = history.series[key].items()
    return sum(value for step, value in of_steps if value >= 0 and step in whole) / whole_s  # one may have no end


def _at_the_front(seconds: _ByRank | None) -> int | None:
    return max(seconds, key=lambda rank: seconds[rank]) if seconds else None


def _mostly_slowest(history: History, key: SeriesName) -> int | None:
    ranks = history.series.get(SeriesName(key.axis, f"{key.name}/argmax"), {})
    often = Counter(rank for _, rank in _ranks(ranks)).most_common(1)
    return often[0][0] if often else None
