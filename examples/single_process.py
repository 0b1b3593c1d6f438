"""One process: the loop you already have, with four lines of otel_ml.

    python examples/single_process.py

Expected: the folder that the first line on stderr names holds `metrics.jsonl` (and a TensorBoard event file where
TensorBoard is installed) with 200 values of `loss`, falling from 0.69 to below 0.45, and the timers `time/step` and
`time/data`. `otel-ml show latest loss` draws the curve.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import otel_ml

STEPS, LEARNING_RATE = 200, 0.5


def batches(steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    for _ in range(steps):
        features = rng.normal(size=(64, 4))
        yield features, (features.sum(axis=1) + rng.normal(size=64) > 0).astype(float)


def main() -> None:
    weights = np.zeros(4)
    with otel_ml.init("single-process", params={"lr": LEARNING_RATE, "steps": STEPS}) as run:
        for features, labels in otel_ml.steps(batches(STEPS)):
            probability = 1 / (1 + np.exp(-features @ weights))
            loss = -np.mean(labels * np.log(probability) + (1 - labels) * np.log(1 - probability))
            weights -= LEARNING_RATE * features.T @ (probability - labels) / len(labels)
            otel_ml.log({"loss": loss, "accuracy": np.mean((probability > 0.5) == labels)})
        run.summary({"final/loss": float(loss)})


if __name__ == "__main__":
    main()
