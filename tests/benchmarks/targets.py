"""What was asked for: one row for each target, held against what was measured and against who is the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from tests.benchmarks.figures import Figure
from tests.benchmarks.originals import ORIGINALS

__all__ = ["TARGETS", "Limit", "Target", "plain", "said", "said_plainly", "verdict"]

Figures = Mapping[str, Figure]
"""`part/figure` → what was measured."""


@dataclass(frozen=True)
class Limit:
    """One figure of a row, and what it must not exceed (or fall below); None where it is only stated."""

    figure: str
    limit: float | None = None
    label: str = ""
    side: Literal["≤", "≥"] = "≤"

    def holds(self, figure: Figure) -> bool:
        if self.limit is None or figure.value is None:
            return True
        return figure.value <= self.limit if self.side == "≤" else figure.value >= self.limit

    def is_decided(self, figure: Figure) -> bool:
        """Whether the confidence interval, where there is one, lies on one side of the limit."""
        if self.limit is None or figure.confidence is None:
            return True
        low, high = figure.confidence
        return not low <= self.limit <= high


@dataclass(frozen=True)
class Target:
    """One row.

    Attributes:
        target: in words.
        reference: others' published figures.
        beside: figures of others that were measured in the same run, with the words to show them with.
        profile: the flame graph that shows where the time goes, if there is one.
        lasts: (figure that says how many seconds it was, how many were asked for); the verdict says when it was less.
    """

    what: str
    target: str
    limits: tuple[Limit, ...]
    reference: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    profile: str = "worker"
    lasts: tuple[tuple[str, float], ...] = ()

    def is_part_of(self, figures: Figures) -> bool:
        """Whether any of its figures is among these."""
        return any(limit.figure in figures for limit in self.limits)


TARGETS = (
    Target(
        "`metric.record(x)` with step, rank, reduction",
        "≤ 0.25 µs hot, ≤ 1/20 of the SDK's `Histogram.record` with 3 attributes",
        (Limit("calls/record.hot", 0.25), Limit("calls/record.hot.ratio", 1 / 20, "of the SDK's")),
        "Datadog 1.2–2 µs",
        (("calls/record.hot.sdk", "OpenTelemetry SDK"),),
    ),
    Target(
        "`log({10 keys})`",
        "≤ 2 µs",
        (Limit("calls/log_10.hot", 2),),
        beside=(("peers/wandb (offline).call", "`wandb.log`"), ("calls/log_10.hot.sdk", "OpenTelemetry SDK")),
    ),
    Target(
        "`with timed(…)`: span and duration, visible to OpenTelemetry",
        "≤ 1.5 µs, ≤ 1/8 of `start_as_current_span`; above the level ≤ 0.1 µs",
        (
            Limit("calls/timed.hot", 1.5),
            Limit("calls/timed.hot.ratio", 1 / 8, "of the SDK's"),
            Limit("calls/level_off.hot", 0.1, "above the level"),
        ),
        "Datadog 12 µs",
        (("calls/timed.hot.sdk", "OpenTelemetry SDK"),),
    ),
    Target(
        "A call without a run",
        "≤ 0.08 µs",
        (
            Limit("calls/disabled_record.hot", 0.08, "`record`"),
            Limit("calls/disabled_log_10.hot", 0.08, "`log` of 10"),
            Limit("calls/disabled_timed.hot", 0.08, "`timed`"),
        ),
        beside=(("calls/disabled_record.hot.sdk", "OpenTelemetry's no-op counter"),),
    ),
    Target(
        "A step of 100 metrics and 20 timers on the training thread, caches cold, the service down",
        "p50 ≤ 100 µs, p99 ≤ 200 µs",
        (Limit("cold_step/p50", 100, "p50"), Limit("cold_step/p99", 200, "p99")),
        "TraceML 80–550 µs, for its own phases only",
        (("cold_step/sdk.p50", "OpenTelemetry SDK p50"),),
    ),
    Target(
        "A device tensor",
        "the cost of launching a clone and an event; no call that waits on the caller's thread",
        (
            Limit("device_tensor/meta.waits", 0, "on torch's device `meta`: waiting calls"),
            Limit("device_tensor/meta.record", None, "a record"),
            Limit("device_tensor/gpu.waits", 0, "on a GPU: waiting calls"),
            Limit("device_tensor/gpu.record", None, "a record"),
        ),
        "torchforge, AReaL: one synchronization each",
        (
            ("device_tensor/meta.clone", "bare clone on `meta`"),
            ("device_tensor/gpu.clone", "bare clone and event on a GPU"),
        ),
    ),
    Target(
        "DDP training, 4 ranks over gloo, everything on, the service on the same cores",
        "slower by < 0.5 % at 50-ms steps (100 metrics, 20 timers), < 2 % at 5-ms steps (40, 10)",
        (
            Limit("training_loop/50ms.wall.slowdown", 0.5, "50 ms, wall"),
            Limit("training_loop/50ms.cpu.slowdown", 0.5, "50 ms, CPU"),
            Limit("training_loop/5ms.wall.slowdown", 2, "5 ms, wall"),
            Limit("training_loop/5ms.cpu.slowdown", 2, "5 ms, CPU"),
            Limit("training_loop/50ms.wall.step", None, "a step of the first took"),
            Limit("training_loop/5ms.wall.step", None, "of the second"),
        ),
        "torchforge asks for < 5 %, ARGUS < 2 %",
    ),
    Target(
        "All diagnostics but the inspection of tensors, at steps of 50 ms in one process",
        "slower by ≤ 1 %",
        (
            Limit("diagnostics/one_pass.wall.slowdown", 1, "one pass: wall"),
            Limit("diagnostics/one_pass.cpu.slowdown", 1, "one pass: CPU"),
            Limit("diagnostics/one_pass.calls", None, "in the calls"),
            Limit("diagnostics/one_pass.waits", None, "waiting for the interpreter"),
            Limit("diagnostics/small_passes.wall.slowdown", 1, "small passes: wall"),
            Limit("diagnostics/small_passes.cpu.slowdown", 1, "small passes: CPU"),
            Limit("diagnostics/small_passes.calls", None, "in the calls"),
            Limit("diagnostics/small_passes.waits", None, "waiting for the interpreter"),
        ),
        profile="",
    ),
    Target(
        "A context that travels with each sample, `context()`, and a step that counts them, `consumed()`",
        "≤ 1 µs and ≤ 64 bytes a sample, also of 1,000,000 different ones in a step",
        (
            Limit("contexts/context", 1, "`context()` in a span of its own"),
            Limit("contexts/consumed", 1, "`consumed()`, a sample of a batch of 1,024"),
            Limit("contexts/travels", 64, "a context"),
            Limit("contexts/million.caller", 1, "of 1,000,000: a sample on the thread that calls"),
            Limit("contexts/million.all", 1, "on all threads"),
            Limit("contexts/million.memory", None, "memory of the step"),
            Limit("contexts/million.wire", None, "sent of the step"),
        ),
        profile="",
    ),
    Target(
        "A call of `otel_ml.compat`, beside the original's own",
        "≤ 2 × the original",
        tuple(Limit(f"compat/{name}.ratio", 2, name) for name in ORIGINALS),
        profile="",
    ),
    Target(
        "Encoding, a point",
        "≤ 0.3 µs",
        (Limit("encoding/point", 0.3),),
        beside=(("encoding/point.sdk", "the SDK's encoder"),),
    ),
    Target(
        "The service, OTLP → journal → reduction → outbox → TensorBoard and JSONL, sustained for a minute",
        "own clients ≥ 1,700,000 points/s, as many as a Collector that writes the same load to a file, through the "
        "Collector ≥ 300,000; 0 lost",
        (
            Limit("throughput/own.rate", 1_700_000, "own clients", "≥"),
            Limit("throughput/beside.own.ratio", 1, "beside the Collector's file", "≥"),
            Limit("throughput/own.lost", 0, "lost"),
            Limit("throughput/own.duration", None, "sent for"),
            Limit("throughput/collector.rate", 300_000, "through the Collector", "≥"),
            Limit("throughput/collector.lost", 0, "lost"),
        ),
        "RL-Insight 135,489 events/s in bursts of 1 s",
        profile="service",
        lasts=(("throughput/own.duration", 60),),
    ),
    Target(
        "Points of other SDKs with step, reduction and two attributes: decoded, reduced, committed, written as rows",
        "≥ 250,000 points/s, 0.8 × as many as a Collector that writes them to a file; 0 lost",
        (
            Limit("throughput/foreign.rate", 250_000, "", "≥"),
            Limit("throughput/beside.foreign.ratio", 0.8, "beside the Collector's file", "≥"),
            Limit("throughput/foreign.lost", 0, "lost"),
            Limit("throughput/foreign.duration", None, "sent for"),
        ),
        "RL-Insight 135,489 events/s in bursts of 1 s",
        profile="foreign",
    ),
    Target(
        "Spans, sustained, none sampled away, validated",
        "≥ 500,000 spans/s",
        (
            Limit("throughput/spans.rate", 500_000, "", "≥"),
            Limit("throughput/spans.lost", 0, "lost"),
            Limit("throughput/spans.duration", None, "sent for"),
        ),
        "NeMo Lens: 100,000 “exceeds what most collectors can handle”",
        profile="spans",
    ),
    Target(
        "1,024 simulated ranks × (100 metrics + 20 spans), a step a second for 10 minutes",
        "≤ 0.3 core, memory flat (≤ 5 % over the second half); step done → row visible p50 ≤ 0.5 s, p99 ≤ 0.6 s",
        (
            Limit("ranks/1024.duration", None, "ran for"),
            Limit("ranks/1024.cores", 0.3),
            Limit("ranks/1024.memory.growth", 5, "memory"),
            Limit("ranks/1024.tensorboard.p50", 0.5, "TensorBoard p50"),
            Limit("ranks/1024.tensorboard.p99", 0.6, "TensorBoard p99"),
            Limit("ranks/1024.jsonl.p50", 0.5, "JSONL p50"),
            Limit("ranks/1024.jsonl.p99", 0.6, "JSONL p99"),
            Limit("ranks/1024.lost", 0, "lost"),
        ),
        "Ray's metrics are 100–200 s old under load",
        profile="service",
        lasts=(("ranks/1024.duration", 600),),
    ),
    Target(
        "Findings: who is slow, where the time of a step goes, pauses; steps of 100 metrics and 20 spans",
        "≤ 10 % more CPU of the service than without (`OTEL_ML_FINDINGS=off`)",
        (
            Limit("findings/256.cpu", 10, "256 ranks, a step a second"),
            Limit("findings/8.cpu", 10, "8 ranks, ten steps a second"),
        ),
        profile="service",
    ),
    Target(
        "4,096 simulated ranks × (100 metrics + 20 spans), a step a second for a minute",
        "holds: none lost, every rank in time (≤ 1 s late); step done → row visible p99 ≤ 2 s",
        (
            Limit("ranks/4096.duration", None, "ran for"),
            Limit("ranks/4096.lost", 0, "lost"),
            Limit("ranks/4096.late_clients", 1000, "latest rank"),
            Limit("ranks/4096.cores"),
            Limit("ranks/4096.jsonl.p99", 2, "JSONL p99"),
        ),
        "W&B: 300 connections",
        profile="service",
        lasts=(("ranks/4096.duration", 60),),
    ),
    Target(
        "16,384 simulated ranks × 100 metrics, a connection each, a step each 5 s for 10 minutes",
        "step done → row visible p99 ≤ 2 s; ≤ 1.2 cores, ≤ 2 GB, memory flat (≤ 5 % over the second half); 0 lost",
        (
            Limit("ranks/16384.duration", None, "ran for"),
            Limit("ranks/16384.cores", 1.2),
            Limit("ranks/16384.memory", 2_000_000_000 / 2**20, "memory"),
            Limit("ranks/16384.memory.growth", 5, "growth"),
            Limit("ranks/16384.tensorboard.p99", 2, "TensorBoard p99"),
            Limit("ranks/16384.jsonl.p99", 2, "JSONL p99"),
            Limit("ranks/16384.late_clients", None, "the load itself late by"),
            Limit("ranks/16384.lost", 0, "lost"),
        ),
        "W&B: 300 connections",
        profile="service",
        lasts=(("ranks/16384.duration", 600),),
    ),
    Target(
        "Bytes on the wire, gzip, a rank and step of 100 metrics and 20 spans",
        "≤ 1,500 at 20 steps a request, ≤ 3,000 at one",
        (Limit("wire/20.gzip", 1500, "20 steps"), Limit("wire/1.gzip", 3000, "one step")),
        "ARGUS 2,700",
    ),
    Target(
        "Memory of a worker over bare Python",
        "≤ 25 MB with OTLP/HTTP, ≤ 45 MB with gRPC; flat (≤ 1 MB over the second half of all steps)",
        (
            Limit("memory/http.over_bare", 25, "HTTP"),
            Limit("memory/grpc.over_bare", 45, "gRPC"),
            Limit("memory/growth", 1, "growth"),
        ),
        "the SDK's gRPC exporter 40 MB",
    ),
    Target(
        "`import otel_ml`",
        "≤ 40 ms",
        (Limit("imports/otel_ml", 40), Limit("imports/recording", None, "with what records")),
        beside=(("imports/otel_ml.sdk", "OpenTelemetry SDK and exporter"),),
    ),
    Target(
        "Exporters, a scalar in rows of 200",
        "TensorBoard ≤ 0.7 µs, JSONL ≤ 0.3 µs, W&B ≤ 3 µs, MLflow ≤ 110 µs",
        (
            Limit("exporters/tensorboard.scalar", 0.7, "TensorBoard"),
            Limit("exporters/jsonl.scalar", 0.3, "JSONL"),
            Limit("exporters/wandb.scalar", 3, "W&B"),
            Limit("exporters/mlflow.scalar", 110, "MLflow"),
        ),
        profile="service",
    ),
    Target(
        "A finished run of 200,000 steps of 7 values and 3 spans, looked at: the command from its start to its end",
        "report ≤ 5 s",
        (
            Limit("long_run/report.200000", 5, "`otel-ml report`"),
            Limit("long_run/show.200000", None, "`otel-ml show`"),
            Limit("long_run/series.200000", None, "`read(run, 'loss')`"),
            Limit("long_run/read.200000", None, "`read(run)`"),
        ),
        profile="",
    ),
)


def verdict(target: Target, figures: Figures) -> str:
    """Return `met`, `not met`, `not decided`, or why it was not measured; and where it ran for too short a time."""
    found = [(limit, figures.get(limit.figure)) for limit in target.limits]
    missed = [limit for limit, figure in found if figure is not None and not limit.holds(figure)]
    unclear = [limit for limit, figure in found if figure is not None and not limit.is_decided(figure)]
    unknown = [figure.absent if figure else "not yet run" for _, figure in found if figure is None or figure.absent]
    parts = []
    if any(limit not in unclear for limit in missed):
        parts.append("**not met**")
    elif unclear:
        parts.append(f"not decided: the interval of {', '.join(limit.label for limit in unclear)} contains the target")
    elif len(unknown) < len(found):
        parts.append("met")
    if unknown:
        parts.append(f"not measured: {', '.join(dict.fromkeys(unknown))}")
    for name, asked in target.lasts:
        ran = figures.get(name)
        if ran is not None and ran.value is not None and ran.value < asked:
            parts.append(f"over {plain(ran.value)} s of the {plain(asked)} s asked for")
    return "; ".join(parts)


def said(figure: Figure | None, label: str = "") -> str:
    """Return a figure as a table shows it: value, unit, spread."""
    if figure is None or figure.value is None:
        return f"{label} –".strip()
    shown = _ratio(figure.value) if figure.unit == "1" and 0 < figure.value < 0.5 else _number(figure)
    if figure.low is not None and figure.high is not None and figure.unit != "1":
        shown += f" ({plain(figure.low)}…{plain(figure.high)}{_doubt(figure)})"
    return f"{label} {shown}".strip() if not label.startswith("of ") else f"{shown} {label}"


def said_plainly(figure: Figure | None, label: str = "") -> str:
    """Return a figure without its spread, and with the doubt that it is one."""
    if figure is None:
        return said(None, label)
    doubt = ", within the noise" if _is_unclear(figure) else ""
    return said(replace(figure, low=None, high=None), label) + doubt


def _doubt(figure: Figure) -> str:
    return ", not distinguishable from 0" if _is_unclear(figure) else ""


def _is_unclear(figure: Figure) -> bool:
    if figure.confidence is None:
        return False
    low, high = figure.confidence
    return low <= 0 <= high


def _number(figure: Figure) -> str:
    assert figure.value is not None
    return plain(figure.value) if figure.unit == "1" else f"{plain(figure.value)} {figure.unit}"


def _ratio(value: float) -> str:
    return f"1/{plain(1 / value)}"


def plain(value: float) -> str:
    """Write a number with three significant digits, thousands apart, never as a power of ten."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:.10g}"
