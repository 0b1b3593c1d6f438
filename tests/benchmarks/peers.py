"""`log()` of ten values beside what programs log with today: in turns with each, in a process with only that one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.calls import TEN
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Curve, Figure, Found, middle, ratio
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["PEERS", "measure"]

Peer = Callable[[], tuple[str, Mapping[str, Any]]]
"""Sets a peer up in this process; returns the statement that logs `TEN`, and its names."""


def measure(size: Size) -> Found:
    """Measure beside each peer."""
    figures: dict[str, Figure] = {}
    peers = [peer for peer in PEERS if peer not in size.left_out]
    with sink() as url:
        for peer in peers:
            ours, theirs = answer_of(beside, env=sending_to(url), peer=peer, pairs=size.pairs, turn_s=size.turn_s)
            figures[f"{peer}.call"] = middle(theirs, "µs", better="neither")
            figures[f"{peer}.otel_ml"] = middle(ours, "µs")
            figures[f"{peer}.ratio"] = ratio(ours, theirs)
    calls = {"otel_ml": figures[f"{peers[-1]}.otel_ml"], **{peer: figures[f"{peer}.call"] for peer in peers}}
    lines = {name: [(0.0, figure.value or 0.0)] for name, figure in calls.items()}
    return Found(figures, {"log_10": Curve("Logging ten values", "", "µs a call, logarithmic", lines)})


def beside(peer: str, pairs: int, turn_s: float) -> tuple[list[float], list[float]]:
    """Take turns with one peer in this process; return µs a call."""
    import otel_ml

    statement, names = PEERS[peer]()
    otel_ml.init("bench")
    otel_ml.set_step(0)
    ours = hot_calls("otel_ml.log(TEN)", {"otel_ml": otel_ml, "TEN": TEN}, turn_s)
    theirs = hot_calls(statement, {**names, "TEN": TEN, "STEP": itertools.count()}, turn_s)
    found = in_turns(ours, theirs, pairs, after_ours=lambda: otel_ml.flush(10))
    otel_ml.shutdown()
    return found


def opentelemetry_sdk() -> tuple[str, Mapping[str, Any]]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    meter = MeterProvider([InMemoryMetricReader()]).get_meter("bench")
    names = {"histograms": {name: meter.create_histogram(name) for name in TEN}, "AT": {"step": 1, "rank": 0, "dp": 0}}
    return "for name in TEN: histograms[name].record(TEN[name], AT)", names


def prometheus() -> tuple[str, Mapping[str, Any]]:
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    gauges = {name: Gauge(name, name, ["rank"], registry=registry).labels("0") for name in TEN}
    return "for name in TEN: gauges[name].set(TEN[name])", {"gauges": gauges}


def wandb_offline() -> tuple[str, Mapping[str, Any]]:
    import wandb

    return "run.log(TEN)", {"run": wandb.init(mode="offline", settings=wandb.Settings(silent=True))}


def mlflow_log_metrics() -> tuple[str, Mapping[str, Any]]:
    mlflow = _mlflow()
    return "mlflow.log_metrics(TEN, step=next(STEP))", {"mlflow": mlflow}


def mlflow_log_batch() -> tuple[str, Mapping[str, Any]]:
    mlflow = _mlflow()
    names = {
        "Metric": mlflow.entities.Metric,
        "client": mlflow.MlflowClient(),
        "run_id": mlflow.active_run().info.run_id,
    }
    return "client.log_batch(run_id, [Metric(name, TEN[name], 1, next(STEP)) for name in TEN])", names


def tensorboard_writer() -> tuple[str, Mapping[str, Any]]:
    from tensorboard.summary import Writer

    return "for name in TEN: writer.add_scalar(name, TEN[name], next(STEP))", {"writer": Writer("runs")}


def torch_summary_writer() -> tuple[str, Mapping[str, Any]]:
    from torch.utils.tensorboard import SummaryWriter

    return "for name in TEN: writer.add_scalar(name, TEN[name], next(STEP))", {"writer": SummaryWriter("runs")}


def _mlflow() -> Any:
    import mlflow

    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.start_run()
    return mlflow


PEERS: Mapping[str, Peer] = {
    "OpenTelemetry SDK": opentelemetry_sdk,
    "prometheus_client": prometheus,
    "wandb (offline)": wandb_offline,
    "mlflow.log_metrics (sqlite)": mlflow_log_metrics,
    "mlflow log_batch (sqlite)": mlflow_log_batch,
    "tensorboard.summary.Writer": tensorboard_writer,
    "torch SummaryWriter": torch_summary_writer,
}
