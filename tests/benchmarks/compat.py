"""What a program pays that changed only its import: each call beside the original's own, in turns, in one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tests.benchmarks.calls import TEN
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, middle, ratio
from tests.benchmarks.peers import PEERS
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["ORIGINALS", "measure"]


class Original(NamedTuple):
    """A statement, and what sets its names up: the original, and ours."""

    statement: str
    original: Callable[[], Mapping[str, Any]]
    ours: Callable[[], Mapping[str, Any]]


def measure(size: Size) -> Found:
    """Measure each original in a process of its own."""
    figures: dict[str, Figure] = {}
    with sink() as url:
        for name in [name for name in ORIGINALS if name not in size.left_out]:
            ours, theirs = answer_of(beside, env=sending_to(url), name=name, pairs=size.pairs, turn_s=size.turn_s)
            figures[f"{name}.call"] = middle(theirs, "µs", better="neither")
            figures[f"{name}.compat"] = middle(ours, "µs")
            figures[f"{name}.ratio"] = ratio(ours, theirs)
    return Found(figures)


def beside(name: str, pairs: int, turn_s: float) -> tuple[list[float], list[float]]:
    """Take turns with one original in this process; return µs a call."""
    import otel_ml

    statement, original, ours = ORIGINALS[name]
    theirs = hot_calls(statement, {**original(), "TEN": TEN, "STEP": itertools.count()}, turn_s)
    otel_ml.init("bench")
    mine = hot_calls(statement, {**ours(), "TEN": TEN, "STEP": itertools.count()}, turn_s)
    found = in_turns(mine, theirs, pairs, after_ours=lambda: otel_ml.flush(10))
    otel_ml.shutdown()
    return found


def compat_wandb() -> Mapping[str, Any]:
    from otel_ml.compat import wandb

    return {"run": wandb.init()}


def compat_summary_writer() -> Mapping[str, Any]:
    from otel_ml.compat.tensorboard import SummaryWriter

    return {"writer": SummaryWriter("runs")}


def compat_mlflow() -> Mapping[str, Any]:
    from otel_ml.compat import mlflow

    mlflow.start_run()
    return {"mlflow": mlflow}


def names_of(peer: str) -> Callable[[], Mapping[str, Any]]:
    """Return what sets a peer up, for its names."""
    return lambda: PEERS[peer]()[1]


ORIGINALS: Mapping[str, Original] = {
    "wandb run.log, 10 keys": Original("run.log(TEN)", names_of("wandb (offline)"), compat_wandb),
    "SummaryWriter.add_scalar": Original(
        "writer.add_scalar('loss', 0.5, next(STEP))", names_of("torch SummaryWriter"), compat_summary_writer
    ),
    "mlflow.log_metrics, 10 keys": Original(
        "mlflow.log_metrics(TEN, step=next(STEP))", names_of("mlflow.log_metrics (sqlite)"), compat_mlflow
    ),
}
"""Megatron's timers are not here: Megatron is no package that can be installed beside."""
