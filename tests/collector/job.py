"""The job that every fault is tried on: four trainers and two generators that record random values."""

from __future__ import annotations

from pathlib import Path

from tests.collector.pipeline import experiment_of, ranks

__all__ = ["STEPS", "job"]

STEPS = 60


def job(
    folder: Path, endpoint: str, *, seed: int, pause: float = 0.05, steps: int = STEPS
) -> list[tuple[list[object], dict[str, str]]]:
    """Return its commands.

    Args:
        folder: of the test.
        endpoint: of the Collector.
        seed: of what is recorded.
        pause: seconds a step takes at least.
        steps: how many.
    """
    return ranks(
        folder, endpoint, seed=seed, roles={"trainer": 4, "generator": 2}, steps=steps, pause=pause,
        OTEL_ML_EXPERIMENT_ID=experiment_of(folder), OTEL_ML_FLUSH_INTERVAL=200,
    )  # fmt: skip
