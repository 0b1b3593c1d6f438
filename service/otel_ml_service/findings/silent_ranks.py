"""Finds ranks of which nothing arrives, step after step, and those that have left."""

from __future__ import annotations

from dataclasses import replace

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["left", "silence"]

_LEFT = 8
"""Steps of the others after which a rank has left that nobody misses."""


def silence(
    open_findings: dict[tuple[int, str], Finding], step: int, timers: StepTimers, silent_steps: int
) -> list[Finding]:
    """Note which ranks say nothing at a step; return the findings that began, changed their level, or ended with it.

    Args:
        open_findings: (rank, phase) → what is the matter, to be brought up to date.
        step: its number.
        timers: of the step.
        silent_steps: after so many a silence is critical.
    """
    found = []
    for rank in timers.absent:
        if (rank, "") not in open_findings:
            open_findings[rank, ""] = Finding("silent", rank, "", "warning", step, step)
            found.append(open_findings[rank, ""])
    heard = set(timers.ranks)
    for key, before in [entry for entry in open_findings.items() if entry[1].kind == "silent"]:
        if key[0] in heard:
            del open_findings[key]
            found.append(replace(before, is_over=True))
            continue
        is_long = step - before.since + 1 >= silent_steps
        open_findings[key] = replace(before, last=step, level="critical" if is_long else "warning")
        if open_findings[key].level != before.level:
            found.append(open_findings[key])
    return found


def left(open_findings: dict[tuple[int, str], Finding], step: int, timers: StepTimers) -> list[tuple[int, str]]:
    """Return the (rank, phase) of slow ranks that said goodbye, while others went on.

    Args:
        open_findings: (rank, phase) → what is the matter; of a slow rank up to the last step in which it was heard.
        step: its number.
        timers: of the step.
    """
    here = {*timers.ranks, *timers.absent}
    return [
        key
        for key, one in open_findings.items()
        if one.kind == "slow" and key[0] not in here and step - one.last > _LEFT
    ]
