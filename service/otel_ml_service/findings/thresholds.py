"""From when on a rank is slow, and until when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Inert and comparable.

    A phase that takes less than `least_share` of the step, or less than `least_s`, is measured against that: a rank
    that needs twice as long for a hundredth of the step, or for what the operating system disturbs anyway, costs the
    job nothing that anybody would look for.

    Attributes:
        warning: slow-down (a share of the usual time) that is found.
        critical: slow-down from which a finding is critical.
        release: a critical finding is a warning again below this share of `critical`.
        steps: evidence of at least so many steps is needed, to begin and to end: a burst of fewer is not a finding.
        wrongly: findings in a step of a job in which nobody is slow, at most.
        least_share: of the step.
        least_s: seconds.
        silent_steps: a rank that is silent for so many steps is critical.
    """

    warning: float = 0.10
    critical: float = 0.50
    release: float = 0.7
    steps: int = 4
    wrongly: float = 2e-5
    least_share: float = 0.1
    least_s: float = 0.01
    silent_steps: int = 3
