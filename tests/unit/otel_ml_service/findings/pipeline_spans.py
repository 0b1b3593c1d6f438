"""Spans of a pipeline's step: every operation with its beginning and end, as stages hand on micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_ml_exporters.records import Span
from tests.quality.pipelines import one_forward_one_backward

__all__ = ["MS", "Operation", "spans_of_pipeline"]

MS = 1_000_000
SENDING, REDUCING = 50_000, 2 * MS

Operation = tuple[int, int, str, int]
"""Replica, stage, `F` or `B`, micro-batch."""

NAMES = {"F": "forward", "B": "backward"}


def spans_of_pipeline(
    replicas: int, stages: int, micro_batches: int, works: Mapping[Operation, int]
) -> Mapping[int, Sequence[Span]]:
    """Return rank → spans; ranks of a stage follow each other.

    Args:
        replicas: pipelines side by side, which meet in a reduce-scatter at the end.
        stages: of each.
        micro_batches: of a step.
        works: nanoseconds of each operation.
    """
    spans: dict[int, list[Span]] = {}
    ends: dict[int, int] = {}
    for replica in range(replicas):
        _play(replica, replicas, stages, micro_batches, works, spans, ends)
    for rank, end in ends.items():
        _add(spans, rank, "grads-reduce-scatter", end, max(ends.values()) + REDUCING)
        _add(spans, rank, "step", 0, max(ends.values()) + REDUCING)
    return spans


def _play(
    replica: int,
    replicas: int,
    stages: int,
    micro_batches: int,
    works: Mapping[Operation, int],
    spans: dict[int, list[Span]],
    ends: dict[int, int],
) -> None:
    todo = [one_forward_one_backward(stage, stages, micro_batches) for stage in range(stages)]
    now, sent = [0] * stages, dict[tuple[str, int, int], int]()
    while any(todo):
        for stage in range(stages):
            rank = stage * replicas + replica
            while todo[stage]:
                kind, number, _ = todo[stage][0]
                before, after = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
                if 0 <= before < stages:
                    if (kind, number, before) not in sent:
                        break
                    arrived = max(sent[kind, number, before], now[stage] + SENDING)
                    _add(spans, rank, f"{NAMES[kind]}-recv", now[stage], arrived)
                    now[stage] = arrived
                took = works[replica, stage, kind, number]
                _add(spans, rank, f"{NAMES[kind]}-compute", now[stage], now[stage] + took, f"{kind}{number}")
                now[stage] += took
                if 0 <= after < stages:
                    _add(spans, rank, f"{NAMES[kind]}-send", now[stage], now[stage] + SENDING)
                    now[stage] += SENDING
                sent[kind, number, stage] = now[stage]
                todo[stage].pop(0)
            ends[rank] = now[stage]


def _add(spans: dict[int, list[Span]], rank: int, name: str, start: int, end: int, what: str = "") -> None:
    found = spans.setdefault(rank, [])
    span_id = f"{rank}/{what or f'{name}{len(found)}'}"
    parent = None if name == "step" else f"{rank}/whole"
    span_id = f"{rank}/whole" if name == "step" else span_id
    found.append(Span("aa", span_id, parent, name, start, end, "trainer", rank, "step", 7))
