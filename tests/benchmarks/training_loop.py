"""A real training loop, torch DDP over gloo on 4 ranks, with and without recording: wall and CPU time of a step.

One run in embedded mode. Blocks of steps with everything on (metrics, timers, spans, sending, the service that the
ranks have started on the same cores) and blocks without a call of otel_ml take turns in the same processes, so that
neither has its own start, memory or place on the cores. Each block is preceded by steps that do not count. What both
have is an idle run: a heartbeat a second.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from tests.benchmarks.child import bare_environment
from tests.benchmarks.figures import Figure, Found
from tests.benchmarks.sizes import Size
from tests.e2e.jobs import services_of, torchrun, until

__all__ = ["confident", "difference", "measure", "slowdown"]

RANKS = 4
LOOPS = {50: (100, 20), 5: (40, 10)}
"""Milliseconds a step → its metrics and timers."""

DRAWS = 2000
"""Of the bootstrap; with so few pairs more draws change the third digit."""


def measure(size: Size) -> Found:
    """Measure the loop of 50 ms and that of 5 ms."""
    figures: dict[str, Figure] = {}
    for step_ms, (metrics, timers) in LOOPS.items():
        if f"{step_ms}ms" in size.left_out:
            continue
        pairs = job(size, step_ms, metrics, timers)
        on, off = zip(*pairs, strict=True)
        for kind in ("wall", "cpu"):
            ours, bare = [one[kind] for one in on], [one[kind] for one in off]
            figures[f"{step_ms}ms.{kind}.slowdown"] = slowdown(ours, bare)
            figures[f"{step_ms}ms.{kind}.difference"] = difference(ours, bare)
            figures[f"{step_ms}ms.{kind}.step"] = Figure(statistics.median(bare) * 1e3, "ms", better="neither")
        figures[f"{step_ms}ms.training_thread"] = Figure(
            statistics.median(one["calls"] for one in on) * 1e6, "µs", note="in otel_ml's calls, a step and rank"
        )
    return Found(figures)


def job(size: Size, step_ms: int, metrics: int, timers: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Run the job; return seconds a step of (with, without) otel_ml, pair by pair, the mean over the ranks."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as name:
        spec = {
            "step_ms": step_ms,
            "metrics": metrics,
            "timers": timers,
            "pairs": size.loop_pairs,
            "block_s": size.loop_block_s,
        }
        command = [*torchrun(RANKS, "-m", "tests.benchmarks.ddp_rank"), json.dumps(spec)]
        done = subprocess.run(
            [str(part) for part in command],
            env=bare_environment(
                OTEL_ML_DIR=name, OTEL_ML_EXPORTERS="jsonl,tensorboard", OTEL_ML_CONSOLE="off", OTEL_ML_CAPTURE="off"
            ),
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        until(lambda: not services_of(OTEL_ML_DIR=name))
    if done.returncode:
        raise RuntimeError(f"The DDP job failed:\n{done.stdout}{done.stderr}")
    found: list[tuple[dict[str, float], dict[str, float]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def slowdown(ours: Sequence[float], bare: Sequence[float]) -> Figure:
    """Return the median of ours/bare - 1 over pairs, in percent."""
    return confident([(mine / other - 1) * 100 for mine, other in zip(ours, bare, strict=True)], "%")


def difference(ours: Sequence[float], bare: Sequence[float]) -> Figure:
    """Return the median of ours - bare over pairs, in µs."""
    return confident([(mine - other) * 1e6 for mine, other in zip(ours, bare, strict=True)], "µs")


def confident(samples: Sequence[float], unit: str) -> Figure:
    """Return the median of what pairs differ by, with its 95 % confidence interval (bootstrap)."""
    low, high = interval(samples, statistics.median)
    return Figure(statistics.median(samples), unit, low, high, note=f"{len(samples)} pairs", spread="confidence")


def interval(samples: Sequence[float], of: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    """Return a 95 % percentile bootstrap interval; the same samples give the same one."""
    rng = random.Random(0)
    drawn = sorted(of(rng.choices(samples, k=len(samples))) for _ in range(DRAWS))
    return drawn[int(0.025 * DRAWS)], drawn[int(0.975 * DRAWS)]
