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
        steps: evidence of at least so many steps is needed, to begin and to end: a burst of fewer is no finding.
        sigmas: evidence beyond this many times the usual scatter of the phase is needed.
        least_share: of the step.
        least_s: seconds.
        silent_steps: a rank that is silent for so many steps is critical.
    """

    warning: float = 0.10
    critical: float = 0.50
    release: float = 0.7
    steps: int = 4
    sigmas: float = 6.0
    least_share: float = 0.1
    least_s: float = 0.01
    silent_steps: int = 3
