"""The status with which a process ends that ends as another one did."""

from __future__ import annotations

__all__ = ["exit_status"]


def exit_status(code: int) -> int:
    """Return a return code of `subprocess` as a shell has it: 128 and the signal for a process that one has killed.

    Examples:
        >>> exit_status(0), exit_status(3), exit_status(-9)
        (0, 3, 137)
    """
    return code if code >= 0 else 128 - code
