"""What a person is told of a finding when it begins, becomes critical, or is over."""

from __future__ import annotations

from otel_ml.quantities import figure, percent, seconds
from otel_ml_service.aggregation.output import Output
from otel_ml_service.findings.evidence_span import where_shown
from otel_ml_service.findings.finding import Finding, role_of_place
from otel_ml_service.findings.phases import UNTIMED
from otel_ml_service.findings.wording import signed

__all__ = ["say_finding"]

_NAMED = 16
"""Ranks of a place that are listed; the table has all of them."""


def say_finding(output: Output, finding: Finding, role: str, axis: str) -> None:
    """Say it once, on the console of the job and in the log of the service."""
    _SAY[finding.kind](output, finding, role, axis)


def _slow(output: Output, finding: Finding, role: str, axis: str) -> None:
    is_role = bool(role_of_place(finding.place))
    who = f"Role {role!r}" if is_role else f"{_capital(finding.place)} of role {role!r}"
    than, where = "before" if is_role else "the usual rank", _where(finding)
    if finding.is_over:
        output.say(
            "straggler",
            f"{who} is no longer slow {where}: from {axis} {finding.since} to {finding.last}, "
            f"{seconds(finding.cost_s)} longer than {than} in all.{where_shown(finding)}",
        )
    else:
        output.say(
            "straggler",
            f"{who} is slow {where} since {axis} {finding.since}: {seconds(finding.extra_s)} longer than {than}, "
            f"{_longer(finding)}{_without(finding)} ({finding.level}).{_ranks(finding)}{where_shown(finding)}",
        )


def _silent(output: Output, finding: Finding, role: str, axis: str) -> None:
    output.say(
        "straggler",
        # Of a silence only the end is told here: that it began is told where the step closes (`WatchedSteps.tells`).
        f"Rank {finding.rank} of role {role!r} is heard again: "
        f"it was silent from {axis} {finding.since} to {finding.last}.",
    )


def _stage(output: Output, finding: Finding, role: str, axis: str) -> None:
    who = f"Stage {finding.stage} of role {role!r}"
    if finding.is_over:
        output.say(
            "straggler",
            f"{who} no longer has more work than the other stages: from {axis} {finding.since} to {finding.last}, "
            f"{seconds(finding.cost_s)} in all.",
        )
    else:
        output.say(
            "straggler",
            f"{who} has {figure(1 + finding.slowdown)} × the work of the other stages since {axis} {finding.since}: "
            f"{seconds(finding.extra_s)} a step more{_without(finding)} ({finding.level}).",
        )


def _load(output: Output, finding: Finding, role: str, axis: str) -> None:
    """Nobody is slow: it is said who waits for whom, and for how much."""
    one = len(finding.ranks) == 1
    who = f"{_capital(finding.place)} of role {role!r}"
    much = f"{figure(finding.given)} × the {finding.amount} of the other ranks"
    if finding.is_over:
        output.say(
            "straggler",
            f"{who} no longer {'has' if one else 'have'} {much}: {axis} {finding.since} to {finding.last}, "
            f"{seconds(finding.cost_s)} in all.",
        )
    else:
        output.say(
            "straggler",
            f"{who} {'has' if one else 'have'} {much} since {axis} {finding.since}, and {'is' if one else 'are'} not "
            f"slow for it: {seconds(finding.extra_s)} a step more in {finding.phase!r}, which the others wait for"
            f"{_without(finding, 'with as much for all')}.",
        )


def _shape(output: Output, finding: Finding, role: str, axis: str) -> None:
    if finding.is_over:
        output.say(
            "straggler",
            f"The time of a {axis} of role {role!r} no longer follows {finding.amount or 'the shape of the data'}: "
            f"{finding.phase} varied together from {axis} {finding.since} to {finding.last}.",
        )
    else:
        output.say(
            "straggler",
            f"The time of a {axis} of role {role!r} follows {finding.amount or 'the shape of the data'} since {axis} "
            f"{finding.since}: {finding.phase} vary together, r = {finding.correlation:.2f}. Nobody is slow; "
            f"the longest rank works {seconds(finding.extra_s)} longer than the mean.",
        )


def _pause(output: Output, finding: Finding, role: str, axis: str) -> None:
    each_s = finding.cost_s / max(finding.times, 1)
    if finding.is_over:
        output.say(
            "straggler",
            f"Role {role!r} no longer pauses {_where(finding)}: {finding.times} times from {axis} {finding.since} to "
            f"{finding.last}, {seconds(each_s)} each, {seconds(finding.cost_s)} in all.",
        )
    else:
        who = "Nobody is slow" if finding.rank is None else f"Rank {finding.rank} stands still, and the others wait"
        often = "now and then" if finding.every is None else f"every {finding.every} {axis}s"
        output.say(
            "straggler",
            f"Role {role!r} pauses {_where(finding)} {often} since {axis} {finding.since}: {seconds(each_s)} each, "
            f"{seconds(finding.extra_s)} a {axis} on average, {_longer(finding)} ({finding.level}). {who}.",
        )


def _longer(finding: Finding) -> str:
    return signed(percent(finding.slowdown))


def _capital(place: str) -> str:
    return place[:1].upper() + place[1:]


def _where(finding: Finding) -> str:
    if finding.phase == UNTIMED:
        return "outside of its timers"
    return f"in {finding.phase!r}" if finding.phase else "in whatever its ranks work at"


def _ranks(finding: Finding) -> str:
    """Return which ranks of a place are slow, the first ones of many."""
    if not finding.ranks:
        return ""
    more = f" and {len(finding.ranks) - _NAMED} more" if len(finding.ranks) > _NAMED else ""
    are = "Slow is rank" if len(finding.ranks) == 1 else "Slow are ranks"
    return f" {are} {', '.join(map(str, finding.ranks[:_NAMED]))}{more}."


def _without(finding: Finding, what: str = "without it") -> str:
    if not finding.others_wait:
        return "; its own steps take that much longer, and most ranks do not wait for it"
    return f"; {what} a step is {seconds(finding.saved_s)} shorter" if finding.saved_s > 0 else ""


_SAY = {"slow": _slow, "silent": _silent, "stage": _stage, "load": _load, "shape": _shape, "pause": _pause}
