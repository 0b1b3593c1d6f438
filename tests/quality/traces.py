"""Published traces of pipelines (ByteDance-Seed/StragglerAnalysis): what is found, and how much longer steps are.

`python -m tests.quality traces --traces FOLDER` reads each `trace-<name>.parquet` of a folder: a row is an operation,
with `dp_rank`, `stage`, `rank`, `step`, `optype`, `start_ts`, `duration` and `seq_id`. The slow-down is that of their
paper: a step played with the times of the trace, over one in which every operation takes what it takes on average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.quality.pipelines import one_forward_one_backward

__all__ = ["Trace", "found_in", "read", "slowdown", "traces"]

Floats = npt.NDArray[np.float64]

_FORWARD, _BACKWARD = "forward-compute", "backward-compute"
_AT_THE_START, _OF_TWO_STAGES = "params-all-gather", "embedding-grads-all-reduce"
_AT_THE_END = (
    "layernorm-grads-all-reduce", _OF_TWO_STAGES, "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer",
)  # fmt: skip


@dataclass(frozen=True)
class Trace:
    """One job.

    Attributes:
        operations: type → seconds [steps, replicas, stages, operations of the type in a step]; 0 where there is none.
        ranks: [replicas, stages], the global rank of each.
    """

    operations: Mapping[str, Floats]
    ranks: npt.NDArray[np.int64]


def read(path: Path) -> Trace:
    """Return the trace in a file."""
    from pyarrow import parquet

    table = parquet.read_table(path)
    column = {name: np.array(table.column(name).to_pylist()) for name in table.column_names}
    steps, step = np.unique(column["step"], return_inverse=True)
    shape = len(steps), int(column["dp_rank"].max()) + 1, int(column["stage"].max()) + 1
    ranks = np.zeros(shape[1:], dtype=np.int64)
    ranks[column["dp_rank"], column["stage"]] = column["rank"]
    operations = {}
    first = np.argsort(column["start_ts"] + column["step"] * 1e6, kind="stable")
    for name in dict.fromkeys(column["optype"][first].tolist()):
        of_it = (column["optype"] == name) & (column["duration"] > 0)
        place = column["seq_id"][of_it].astype(np.int64)
        seconds = np.zeros((*shape, int(place.max(initial=0)) + 1))
        seconds[step[of_it], column["dp_rank"][of_it], column["stage"][of_it], place] = column["duration"][of_it]
        operations[name] = seconds
    return Trace({name: seconds for name, seconds in operations.items() if name != "gc"}, ranks)


def found_in(trace: Trace) -> StepFindings:
    """Return what stands after the last step."""
    step_findings = StepFindings()
    phases = tuple(trace.operations)
    ranks = tuple(trace.ranks.ravel().tolist())
    where = tuple(np.indices(trace.ranks.shape)[1].ravel().tolist())
    totals = np.stack([seconds.sum(axis=3).reshape(-1, len(ranks)) for seconds in trace.operations.values()], axis=2)
    totals[totals == 0] = np.nan
    for step, seconds in enumerate(totals):
        step_findings.step(step, StepTimers(ranks, phases, seconds, stages=where), {})
    return step_findings


def slowdown(trace: Trace) -> float:
    """Return how much longer steps are than with equal times: 1.0 where all are equal."""
    operations = trace.operations
    sent = {kind: _sent(operations, kind, by) for kind, by in (("forward", 1), ("backward", -1))}
    begins, ends = _together(operations, _AT_THE_START), sum(_together(operations, name) for name in _AT_THE_END)
    works = operations[_FORWARD], operations[_BACKWARD]
    real = _played(*works, sent["forward"], sent["backward"]) + begins + ends
    equal = _played(*map(_mean, works), _median(sent["forward"]), _median(sent["backward"]))
    ideal = equal + np.median(begins) + np.median(ends)
    return float(real.mean() / ideal.mean())


def _sent(operations: Mapping[str, Floats], kind: str, by: int) -> Floats:
    """Return what it takes to hand on, at who receives: without waiting for each other, the shorter of both."""
    send, receive = operations[f"{kind}-send"], operations[f"{kind}-recv"]
    seconds = np.zeros_like(receive)
    for stage in range(send.shape[2]):
        if 0 <= stage + by < send.shape[2]:
            seconds[:, :, stage + by] = np.minimum(send[:, :, stage], receive[:, :, stage + by])
    return seconds


def _together(operations: Mapping[str, Floats], name: str) -> Floats:
    """Return what a collective takes in each step, without waiting: as long as for the rank that came last."""
    seconds = operations[name].sum(axis=3)
    return (seconds[:, :, [0, -1]] if name == _OF_TWO_STAGES else seconds).min(axis=(1, 2))


def _mean(seconds: Floats) -> Floats:
    return np.full_like(seconds, seconds.mean())


def _median(seconds: Floats) -> Floats:
    return np.full_like(seconds, np.median(seconds[seconds > 0]))


def _played(forward: Floats, backward: Floats, forward_sent: Floats, backward_sent: Floats) -> Floats:
    """Return how long each step takes from the first forward pass to the last backward pass of any rank."""
    _, _, stages, micro_batches = forward.shape
    todo = [one_forward_one_backward(stage, stages, micro_batches) for stage in range(stages)]
    now = np.zeros(forward.shape[:3])
    done: dict[tuple[str, int, int], Floats] = {}
    place = [0] * stages
    while sum(place) < sum(map(len, todo)):
        for stage in range(stages):
            while place[stage] < len(todo[stage]):
                kind, number, _ = todo[stage][place[stage]]
                work, sent, comes_from = (
                    (forward, forward_sent, stage - 1) if kind == "F" else (backward, backward_sent, stage + 1)
                )
                is_received = 0 <= comes_from < stages
                if is_received and (kind, number, comes_from) not in done:
                    break
                if is_received:
                    ready = done[kind, number, comes_from] + sent[:, :, stage, number]
                    now[:, :, stage] = np.maximum(now[:, :, stage], ready)
                now[:, :, stage] += work[:, :, stage, number]
                done[kind, number, stage] = now[:, :, stage].copy()
                place[stage] += 1
    return now.max(axis=(1, 2))


def traces(folder: Path, tell: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """Yield the lines of a table of all traces in a folder; `tell` is told which one is looked at.

    Raises:
        ValueError: there is none.
    """
    paths = sorted(folder.glob("trace-*.parquet"))
    if not paths:
        raise ValueError(f"There is no trace-<name>.parquet in {str(folder)!r}.")
    yield "| trace | what is found | cost, s a step | slow-down S |"
    yield "|---|---|---|---|"
    for path in paths:
        tell(path.name)
        trace = read(path)
        step_findings = found_in(trace)
        every = sorted(step_findings, key=lambda one: -one.saved_s)
        said = [
            f"{one.place}: {one.kind} {one.phase}, {one.slowdown:+.0%}, {_figures(one.correlation)}" for one in every
        ]
        cost = max(step_findings.cost_s, *(one.saved_s for one in every), 0.0)
        name = path.stem.removeprefix("trace-")
        yield f"| {name} | {'; '.join(said).replace(', ;', ';').rstrip(', ')} | {cost:.2f} | {slowdown(trace):.3f} |"


def _figures(correlation: float | None) -> str:
    return "" if correlation is None else f"r = {correlation:.2f}"
