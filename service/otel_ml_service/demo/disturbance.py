"""What goes wrong in the demo on purpose. The summary has to find it in the recorded data; it does not look here."""

from __future__ import annotations

import time

__all__ = ["KILL_EVALUATOR_AT", "slow_down"]

SLOW_RANK = 2
SLOW_STEPS = range(40, 81)
SLOW_S = 0.025

KILL_EVALUATOR_AT = 100
"""The evaluator is killed once it has evaluated the model of this step, or a later one."""


def slow_down(rank: int, step: int) -> None:
    """Make one rank slow for a while, as a hot GPU or a noisy neighbor would."""
    if rank == SLOW_RANK and step in SLOW_STEPS:
        time.sleep(SLOW_S)
