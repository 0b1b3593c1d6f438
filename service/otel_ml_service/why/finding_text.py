"""What was found, in words."""

from __future__ import annotations

from otel_ml.quantities import figure, seconds
from otel_ml_service.findings.finding import role_of_place
from otel_ml_service.findings.phases import UNTIMED
from otel_ml_service.findings.wording import signed, steps_text
from otel_ml_service.why.facts import Slow

__all__ = ["found_text", "what_was", "what_was_when", "where_in"]


def what_was(slow: Slow, of_role: str = "") -> str:
    """Return who did what; `of_role` stands behind who it was.

    Examples:
        >>> what_was(Slow("", "step", "slow", 2, "rank 2", "forward", 80, 149, True, 0.0149, 1.04))
        'rank 2 was slow in forward'
        >>> what_was(Slow("", "step", "slow", None, "role generator", "work", 8, 9, True, 0.1, 1.0), " of generator")
        'role generator was slow in work'
        >>> what_was(Slow("", "step", "stage", None, "stage 2", "", 0, 59, False, 0.02, 1.2, slowdown=0.72))
        'stage 2 had 1.72 × the work of the other stages'
        >>> what_was(Slow("", "step", "pause", None, "nobody", "checkpoint", 9, 59, True, 0.4, 18.0))
        'the job paused in checkpoint, and nobody was slow'
    """
    if slow.kind == "silent":
        return f"{slow.who}{of_role} was silent"
    if slow.kind == "stage":
        return f"{slow.who}{of_role} had {figure(1 + slow.slowdown)} × the work of the other stages"
    if slow.kind == "load":
        return f"{slow.who}{of_role} had {figure(slow.given)} × the {slow.amount} of the other ranks"
    if slow.kind == "shape":
        data = f"{slow.amount} of each rank" if slow.amount else "the data"
        return f"step time{of_role} followed {data} ({slow.phase} varied together), and nobody was slow"
    of_role = "" if role_of_place(slow.who) else of_role
    where = where_in(slow.phase) or "now and then"
    if slow.kind == "pause":
        who = "the job" if slow.who == "nobody" else slow.who
        return f"{who}{of_role} paused {where}" + (", and nobody was slow" if slow.who == "nobody" else "")
    return f"{slow.who}{of_role} was slow {where}"


def where_in(phase: str) -> str:
    """Return in what somebody is slow, or pauses; nothing where that is in whatever it works at.

    Examples:
        >>> where_in("forward"), where_in("untimed"), where_in("")
        ('in forward', 'outside of its timers', '')
    """
    return "outside of its timers" if phase == UNTIMED else f"in {phase}" if phase else ""


def what_was_when(slow: Slow) -> str:
    """Return who did what in which steps."""
    return f"{what_was(slow)}, {steps_text(slow.since, slow.last, slow.axis)}"


def found_text(slow: Slow) -> str:
    """Return who did what when, and what it cost."""
    over = "" if slow.is_over else ", and lasts"
    measured = slow.kind != "silent" and slow.cost_s > 0
    cost = f": {signed(seconds(slow.extra_s))} a step, {seconds(slow.cost_s)} in all" if measured else ""
    alone = "" if slow.others_wait else "; most ranks did not wait for it"
    return f"{what_was_when(slow)}{over}{cost}{alone}"
