"""Which ranks do the same work: like is compared with like.

Ranks of one pipeline stage are peers, whatever their place in data, tensor and context parallelism. Where nobody says
which stage a rank is in, those are peers that send to and receive from other stages in the same phases: the first
stage receives nothing in the forward pass, and the last one nothing in the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.phases import NOTHING_SAID, TimerKind, is_between_stages

__all__ = ["groups_of", "is_pipeline", "usual_of"]

Floats = npt.NDArray[np.float64]
Groups = tuple[npt.NDArray[np.int64], ...]
"""The rows of each group."""


def is_pipeline(phases: Sequence[str], kinds: Mapping[str, TimerKind] = NOTHING_SAID) -> bool:
    """Whether timers are those of a pipeline: its phases take turns, and are not a line."""
    return any(_hands_on(phase, kinds) for phase in phases)


def groups_of(
    stages: Sequence[int | None],
    phases: Sequence[str],
    has: npt.NDArray[np.bool_],
    kinds: Mapping[str, TimerKind] = NOTHING_SAID,
) -> Groups:
    """Return the rows of ranks that are peers.

    Args:
        stages: of each rank its pipeline stage; None where nobody said it.
        phases: names of timers.
        has: [ranks, phases], whether a rank has the timer.
        kinds: what timers were declared to measure: one of work hands nothing on, whatever its name.

    Examples:
        >>> has = np.array([[False, True], [True, True], [False, True], [True, True]])
        >>> [rows.tolist() for rows in groups_of([None] * 4, ("recv", "compute"), has)]
        [[0, 2], [1, 3]]
        >>> [rows.tolist() for rows in groups_of([0, 0, 1, 1], ("recv", "compute"), has)]
        [[0, 1], [2, 3]]
    """
    columns = [column for column, phase in enumerate(phases) if _hands_on(phase, kinds)]
    keys = [
        (stage, None) if stage is not None else (None, tuple(row))
        for stage, row in zip(stages, has[:, columns].tolist(), strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    of_rows = np.array([numbers[key] for key in keys], dtype=np.int64)
    return tuple(np.flatnonzero(of_rows == number) for number in range(len(numbers)))


def _hands_on(phase: str, kinds: Mapping[str, TimerKind]) -> bool:
    return kinds.get(phase) != "work" and is_between_stages(phase)


def usual_of(seconds: Floats, groups: Groups) -> Floats:
    """Return what is usual for each rank in each phase: the lower median of its peers; NaN where it has none.

    Args:
        seconds: [ranks, phases].
        groups: of its rows.
    """
    usual = np.full(seconds.shape, np.nan)
    for rows in groups:
        usual[rows] = low_median(seconds[rows], least=2)
    return usual
