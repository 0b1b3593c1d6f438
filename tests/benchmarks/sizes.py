"""How much is measured: the same things, for a shorter or a longer time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = ["SIZES", "Size"]


@dataclass(frozen=True)
class Size:
    """Durations in seconds, and how often.

    Attributes:
        pairs: turns of ours and the other's in an A/B of calls.
        cold_pairs: of those whose caches are evicted before each call.
        turn_s: how long one turn of one side lasts.
        cold_steps: steps of each side with evicted caches.
        loop_pairs: pairs of blocks of the DDP loop.
        diagnosed_pairs: pairs of blocks of 7 steps of 50 ms, with all diagnostics and without.
        collective_pairs: turns of `log()` and of an `all_reduce` a key, in jobs of `collective_ranks`.
        loop_block_s: length of a block.
        service_s: sustained load on the service.
        hop_s: load through the Collector, of foreign points, of spans.
        beside_s, beside_pairs: length and number of the turns of the service and of a Collector that writes a file.
        job_s: length of each of the jobs of simulated ranks.
        memory_steps: steps of 12 values that a worker's memory is watched over.
        starts: processes that are started to measure an import.
        run_steps: lengths of the runs on disk that the commands read.
        rows: rows of 200 scalars given to each exporter.
        profile_s: how long a profile looks.
        curve_s: load of the service for one point of a curve.
        writers: a line each in the curve of steps a request.
        left_out: programs to compare with, loops and jobs that are not measured, by their names in the figures.
        ranks, metrics, per_request, attributes, open_steps, late, reductions: the points of the curves.
    """

    name: str
    pairs: int
    cold_pairs: int
    turn_s: float
    cold_steps: int
    loop_pairs: int
    loop_block_s: float
    diagnosed_pairs: int
    collective_pairs: int
    collective_ranks: Sequence[int]
    service_s: float
    hop_s: float
    beside_s: float
    beside_pairs: int
    job_s: Mapping[int, float]
    memory_steps: int
    starts: int
    run_steps: Sequence[int]
    rows: int
    profile_s: float
    curve_s: float
    writers: Sequence[int]
    ranks: Sequence[int]
    metrics: Sequence[int]
    per_request: Sequence[int]
    attributes: Sequence[int]
    open_steps: Sequence[int]
    late: Sequence[int]
    reductions: Sequence[str]
    left_out: frozenset[str] = frozenset()


QUICK = Size(
    name="quick",
    pairs=10,
    cold_pairs=3,
    turn_s=0.002,
    cold_steps=30,
    loop_pairs=2,
    loop_block_s=0.5,
    diagnosed_pairs=2,
    collective_pairs=10,
    collective_ranks=(2,),
    service_s=3,
    hop_s=1,
    beside_s=1,
    beside_pairs=1,
    job_s={1024: 5},
    memory_steps=5_000,
    starts=3,
    run_steps=(1_000, 10_000),
    rows=20,
    profile_s=1,
    curve_s=0.2,
    writers=(64,),
    ranks=(1, 256),
    metrics=(100, 1000),
    per_request=(20,),
    attributes=(4,),
    open_steps=(20,),
    late=(10,),
    reductions=("p99",),
    left_out=frozenset(
        {
            *("mlflow.log_metrics (sqlite)", "mlflow log_batch (sqlite)", "torch SummaryWriter"),
            *("mlflow.log_metrics, 10 keys", "wandb run.log, 10 keys", "Lightning's logger (TensorBoard), 10 keys"),
            *("Hugging Face's callback (TensorBoard), 10 keys", "Accelerate's tracker (TensorBoard), 10 keys"),
            *("Megatron's timer, start and stop", "verl Tracking.log (TensorBoard), 10 keys"),
            *("itwinai's logger (TensorBoard)", "tensorboardX's SummaryWriter.add_scalar"),
            "Megatron Bridge's callbacks, the end of a step",
            *("50ms", "4096", "16384"),
        }
    ),
)

FULL = Size(
    name="full",
    pairs=20,
    cold_pairs=10,
    turn_s=0.01,
    cold_steps=120,
    loop_pairs=10,
    loop_block_s=1.5,
    diagnosed_pairs=150,
    collective_pairs=15,
    collective_ranks=(2, 4),
    service_s=60,
    hop_s=20,
    beside_s=5,
    beside_pairs=5,
    job_s={1024: 60, 4096: 60, 16_384: 60},
    memory_steps=1_000_000,
    starts=9,
    run_steps=(1_000, 10_000, 100_000, 200_000, 1_000_000),
    rows=300,
    profile_s=6,
    curve_s=0.7,
    writers=(64, 1024),
    ranks=(1, 16, 256, 1024, 4096),
    metrics=(1, 10, 100, 1000, 10_000),
    per_request=(1, 20, 100),
    attributes=(0, 2, 8),
    open_steps=(0, 30, 300),
    late=(0, 10, 50),
    reductions=(
        *("mean", "weighted", "sum", "min", "max", "count", "std", "last", "first"),
        *("p50", "p99", "histogram", "rank", "argmax", "argmin", "sum>max"),
    ),
)

LONG = replace(FULL, name="long", job_s={1024: 600, 4096: 60, 16_384: 600})

SIZES = {size.name: size for size in (QUICK, FULL, LONG)}
