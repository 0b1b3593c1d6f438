"""What the timers of a pipeline say: schedules of micro-batches, played event by event."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["interleaved", "one_forward_one_backward", "timers_of"]

Floats = npt.NDArray[np.float64]

Work = tuple[str, int, int]
"""(F or B, micro-batch, chunk of the model on this stage)."""

Schedule = Callable[[int, int, int], list[Work]]

SENDING_S, REDUCING_S = 0.001, 0.02


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Work]:
    """Return what a stage does, in its order."""
    ahead = min(stages - stage - 1, micro_batches)
    work: list[Work] = [("F", number, 0) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            work.append(("F", ahead + number, 0))
        work.append(("B", number, 0))
    return work


def interleaved(stage: int, stages: int, micro_batches: int, chunks: int = 2) -> list[Work]:
    """Return the same where each stage has two chunks of the model, in groups of as many micro-batches as stages."""

    def of(place: int, *, backward: bool) -> tuple[int, int]:
        group, within = divmod(place, stages * chunks)
        chunk = within // stages
        return group * stages + within % stages, chunks - 1 - chunk if backward else chunk

    total = micro_batches * chunks
    ahead = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    work: list[Work] = [("F", *of(place, backward=False)) for place in range(ahead)]
    for place in range(total):
        if ahead + place < total:
            work.append(("F", *of(ahead + place, backward=False)))
        work.append(("B", *of(place, backward=True)))
    return work


def timers_of(schedule: Schedule, forward: Floats, backward: Floats, micro_batches: int) -> Floats:
    """Return seconds [replicas × stages, phases]; NaN where a stage receives nothing.

    Args:
        schedule: of a stage.
        forward: seconds of a micro-batch [replicas, stages]; `backward` the same.
        micro_batches: of a step.
    """
    replicas, stages = forward.shape
    seconds = np.zeros((replicas, stages, 5))
    ends = np.zeros((replicas, stages))
    for replica in range(replicas):
        ends[replica] = _play(schedule, forward[replica], backward[replica], micro_batches, seconds[replica])
    seconds[:, :, 4] = ends.max(axis=0) - ends + REDUCING_S
    table = seconds.reshape(replicas * stages, 5)
    table[table == 0] = np.nan
    return table


def _play(schedule: Schedule, forward: Floats, backward: Floats, micro_batches: int, seconds: Floats) -> Floats:
    """Fill in the timers of one replica; return when its stages end."""
    stages = len(forward)
    todo = [schedule(stage, stages, micro_batches) for stage in range(stages)]
    chunks = 1 + max(chunk for work in todo for _, _, chunk in work)
    done: dict[tuple[str, int, int], float] = {}
    now, place = np.zeros(stages), [0] * stages
    while any(place[stage] < len(todo[stage]) for stage in range(stages)):
        before = list(place)
        for stage in range(stages):
            while place[stage] < len(todo[stage]):
                kind, number, chunk = todo[stage][place[stage]]
                part = chunk * stages + stage
                comes_from = part - 1 if kind == "F" else part + 1
                is_received = 0 <= comes_from < stages * chunks
                if is_received and (kind, number, comes_from) not in done:
                    break
                if is_received:
                    ready = done[kind, number, comes_from]
                    seconds[stage, 0 if kind == "F" else 2] += max(0.0, ready - now[stage]) + SENDING_S
                    now[stage] = max(now[stage], ready)
                if kind == "B" and part == stages * chunks - 1:
                    assert ("F", number, part) in done
                took = (forward if kind == "F" else backward)[stage] / chunks
                seconds[stage, 1 if kind == "F" else 3] += took
                now[stage] += took
                done[kind, number, part] = now[stage]
                place[stage] += 1
        assert place != before, "the schedule waits for itself"
    return now
