"""What a person is told of a finding when it begins, becomes critical, or is over."""

from __future__ import annotations

from otel_ml_service.aggregation.output import Output
from otel_ml_service.findings.evidence_span import where_shown
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.phases import UNTIMED

__all__ = ["say_finding"]


def say_finding(output: Output, finding: Finding, role: str, axis: str) -> None:
    """Say it once, on the console of the job and in the log of the service."""
    _SAY[finding.kind](output, finding, role, axis)


def _slow(output: Output, finding: Finding, role: str, axis: str) -> None:
    who = f"Rank {finding.rank} of role {role!r}"
    where = "outside of its timers" if finding.phase == UNTIMED else f"in {finding.phase!r}"
    if finding.is_over:
        output.say(
            "straggler",
            f"{who} is no longer slow {where}: {axis} {finding.since} to {finding.last}, "
            f"{finding.cost_s:.3g} s longer than the usual rank in all.{where_shown(finding)}",
        )
    else:
        output.say(
            "straggler",
            f"{who} is slow {where} since {axis} {finding.since}: {finding.extra_s:.3g} s longer than the usual rank, "
            f"{finding.slowdown:+.0%}{_without(finding)} ({finding.level}).{where_shown(finding)}",
        )


def _silent(output: Output, finding: Finding, role: str, axis: str) -> None:
    output.say(
        "straggler",
        f"Rank {finding.rank} of role {role!r} is heard again at {axis} {finding.last}: "
        f"it was silent since {finding.since}.",
    )


def _stage(output: Output, finding: Finding, role: str, axis: str) -> None:
    who = f"Stage {finding.stage} of role {role!r}"
    if finding.is_over:
        output.say(
            "straggler",
            f"{who} no longer has more work than the other stages: {axis} {finding.since} to {finding.last}, "
            f"{finding.cost_s:.3g} s in all.",
        )
    else:
        output.say(
            "straggler",
            f"{who} has {1 + finding.slowdown:.3g} × the work of the other stages since {axis} {finding.since}: "
            f"{finding.extra_s:.3g} s a step more{_without(finding)} ({finding.level}).",
        )


def _shape(output: Output, finding: Finding, role: str, axis: str) -> None:
    if finding.is_over:
        output.say(
            "straggler",
            f"The time of a {axis} of role {role!r} no longer follows the shape of the data: {finding.phase} varied "
            f"together from {axis} {finding.since} to {finding.last}.",
        )
    else:
        output.say(
            "straggler",
            f"The time of a {axis} of role {role!r} follows the shape of the data since {axis} {finding.since}: "
            f"{finding.phase} vary together, r = {finding.correlation:.2f}. Nobody is slow; the longest rank works "
            f"{finding.extra_s:.3g} s longer than the mean.",
        )


def _without(finding: Finding) -> str:
    return f"; without it a step is {finding.saved_s:.3g} s shorter" if finding.saved_s > 0 else ""


_SAY = {"slow": _slow, "silent": _silent, "stage": _stage, "shape": _shape}
