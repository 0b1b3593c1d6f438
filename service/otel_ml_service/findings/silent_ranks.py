"""Finds ranks of which nothing arrives, step after step, and those that are heard no more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.evidence_matrix import Floats
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["Rhythm", "silence"]

_LEFT = 8
"""Steps of the others after which a rank has left that was heard in each."""


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
    if not (timers.absent or open_findings):
        return []
    found = []
    for rank in timers.absent:
        # The phase of a silence is empty: the rank is silent in all of them.
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


class Rhythm:
    """How many steps lie between two in which a rank, or a phase, is heard: some are in every tenth step alone."""

    def __init__(self) -> None:
        self._last: Floats = np.zeros(0)
        self._longest: Floats = np.zeros(0)

    def hear(self, step: int, heard: npt.NDArray[np.bool_]) -> None:
        """Take which ranks, or phases, a step has."""
        new = len(heard) - len(self._last)
        if new > 0:
            self._last = np.concatenate([self._last, np.full(new, np.nan)])
            self._longest = np.concatenate([self._longest, np.zeros(new)])
        # A rank of which this is the first step has no distance yet: NaN, which `fmax` passes over.
        np.fmax(self._longest, step - self._last, out=self._longest, where=heard)
        self._last[heard] = step

    def has_left(self, row: int, step: int) -> bool:
        """Whether a rank was not heard for much longer than ever before."""
        return 0 <= row < len(self._last) and bool(step - self._last[row] > max(_LEFT, 2 * self._longest[row]))
