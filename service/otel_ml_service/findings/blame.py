"""Whose fault a long timer is: not of a rank that waited for another one, and not of the timer around a slow one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.peers import Groups, usual_of

__all__ = ["own_extra", "without_containers"]

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_EXPLAINED = 0.7
"""A shorter phase that lost this share of what a longer one lost is the reason of both: it is inside of it."""


def own_extra(
    seconds: Floats, usual: Floats, groups: Groups, later: Floats | None = None, is_known: Flags | None = None
) -> Floats:
    """Return how many seconds longer than the usual rank each took, without what may have been waiting.

    Who comes early waits, in a phase that comes later: a rank that is `d` seconds ahead of the last one when a phase
    begins may take `d` longer in it for no fault of its own. So the time without that head start must be longer than
    the usual rank's, too. What is longer only then is not counted either: not every phase waits.

    Args:
        seconds: [ranks, phases], phases in the order in which they are recorded within a step; of many steps, in which
            the same ranks have the same phases, [ranks, steps, phases].
        usual: of each rank, in the same form.
        groups: rows of ranks that do the same work.
        later: [ranks, phases], by how much later than its times tell each began, that came late out of the step before
            (`meetings.py`).
        is_known: the same, where that is sure enough to take its head start from it.

    Examples:
        Rank 1 is slow in the first phase; rank 0 waits for it in the second one:

        >>> seconds = np.array([[1.0, 0.4], [1.3, 0.1]])
        >>> own_extra(seconds, np.array([[1.0, 0.1]] * 2), (np.array([0, 1]),)).round(3).tolist()
        [[0.0, 0.0], [0.3, 0.0]]

        Rank 2 is slow in the last phase, and the others wait for it in the next step:

        >>> seconds, usual = np.array([[0.4, 0.1], [0.4, 0.1], [0.1, 0.4]]), np.array([[0.4, 0.1]] * 3)
        >>> later = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.3]])
        >>> own_extra(seconds, usual, (np.arange(3),), later, later > 0).round(3).tolist()
        [[0.0, 0.0], [0.0, 0.0], [-0.3, 0.3]]
    """
    # When each rank began a phase, if it did nothing between them.
    begun = np.zeros_like(seconds)
    np.cumsum(np.where(np.isnan(seconds), 0.0, seconds)[..., :-1], axis=-1, out=begun[..., 1:])
    last = begun.max(axis=0)
    if later is not None and is_known is not None:
        last = (begun + later).max(axis=0)
        begun += np.where(is_known, later, 0.0)
    # Less all that it may have waited: by how much it was ahead of who began last.
    alone = seconds - (last - begun)
    extra: Floats = np.minimum(seconds - usual, alone - usual_of(alone, groups))
    if is_known is None:
        return extra
    # Of who came late it is known when it began: what is left of its head start may be waiting, whoever else waited.
    return np.where(is_known, np.minimum(extra, alone - usual), extra)


def without_containers(suspects: Flags, likely: Flags, extra: Floats, usual: Floats) -> Flags:
    """Return the suspects [ranks, phases] without phases that contain the one that is slow.

    Args:
        suspects: of which there is evidence enough.
        likely: of which there may be soon: what is around such a phase waits for it, whichever is certain first.
        extra: seconds longer than the usual rank, lately.
        usual: seconds of the usual rank.

    Examples:
        Rank 1 is slow in `forward`, so also in the `step` around it:

        >>> suspects, usual = np.array([[False, False], [True, True]]), np.array([[1.0, 3.0]] * 2)
        >>> without_containers(suspects, suspects, np.array([[0.0, 0.0], [0.3, 0.32]]), usual).tolist()
        [[False, False], [True, False]]
    """
    kept: Flags = suspects.copy()
    for row in np.flatnonzero(suspects.any(axis=1)).tolist():
        columns = np.flatnonzero(suspects[row] | likely[row])
        for outer in np.flatnonzero(suspects[row]).tolist():
            # A phase is inside only of one that usually takes longer.
            inside = columns[usual[row, columns] < usual[row, outer]]
            kept[row, outer] = not (extra[row, inside] >= _EXPLAINED * extra[row, outer]).any()
    return kept
